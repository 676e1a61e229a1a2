"""Batch scripts of Slurm (`sbatch`): what they ask for, what they run, and the job that does the same."""
