"""Stopping workers, and finding those that cannot stop."""
