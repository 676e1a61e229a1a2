"""What the team that runs the cluster gives to jobs."""
