"""Committed states on disk."""
