"""What a run must have kept: of the cluster, and of the training."""
