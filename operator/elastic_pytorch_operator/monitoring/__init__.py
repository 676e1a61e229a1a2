"""Metrics, probes, and whether the operator is well."""
