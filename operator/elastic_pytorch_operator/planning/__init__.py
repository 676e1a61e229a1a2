"""Decides about one job at one moment. Pure: no I/O, no clock, no randomness."""
