"""Workarounds for faults of torch."""
