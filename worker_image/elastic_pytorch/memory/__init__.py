"""Committed states in memory that outlives the training process."""
