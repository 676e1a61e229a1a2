"""Measures what thousands of workers cost the operator: fake pods, simulated agents over TLS."""
