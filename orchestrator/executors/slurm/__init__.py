"""Trials as SLURM jobs through submitit."""
