"""Local mode: one job on this machine, without a cluster."""
