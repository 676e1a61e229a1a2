"""What the demo and the benchmarks have in common: a running job is watched, and what its logs say becomes figures."""
