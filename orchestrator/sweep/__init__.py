"""A sweep as it runs: its members, its plan, its corpus."""
