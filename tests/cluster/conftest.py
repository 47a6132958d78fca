"""What needs daemons: a real SLURM, a real Ray cluster, a real PostgreSQL. Run by ``make test-cluster``."""
