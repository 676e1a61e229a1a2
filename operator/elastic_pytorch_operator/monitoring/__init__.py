"""Metrics, probes, and the checks behind the liveness probe."""
