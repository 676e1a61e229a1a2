"""Batch scripts of Slurm (`sbatch`)."""
