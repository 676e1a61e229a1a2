"""Faults of a training, and what each costs it: on a cluster, or in local mode."""
