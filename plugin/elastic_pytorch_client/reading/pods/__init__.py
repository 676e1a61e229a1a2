"""The pods of a job: the workers in them, and their troubles. Pure."""
