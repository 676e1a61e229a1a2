"""Faults that are made to a training on purpose, and what each costs it: on a cluster, or in local mode."""
