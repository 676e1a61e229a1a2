"""Measures on a running cluster how long the operator's promises take."""
