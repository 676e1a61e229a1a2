"""The meaning of an object of the cluster: a job, its pods, its nodes, its events. Pure."""
