"""What a trial costs before it runs: FLOPs, memory, disk, time."""
