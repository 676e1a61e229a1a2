"""Torch's own faults, worked around."""
