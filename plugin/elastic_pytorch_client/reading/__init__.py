"""What an object of the cluster means: a job, its pods, its nodes, its events. Pure."""
