"""Committed states in memory that outlives the process."""
