"""What the programs that measure on the kind cluster share: a job, its faults, its figures."""
