"""The kinds of job that migration reads."""
