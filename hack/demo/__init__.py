"""Shows on a running cluster what the operator is for."""
