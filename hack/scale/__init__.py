"""Measures what thousands of workers cost the operator: fake pods on a kind cluster, and agents that are simulated over TLS."""
