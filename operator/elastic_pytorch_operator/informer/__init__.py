"""The operator's cache of jobs, pods and nodes, and the watches that feed it."""
