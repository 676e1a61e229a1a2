"""Joins, leaves and changes the process group within the living process."""
