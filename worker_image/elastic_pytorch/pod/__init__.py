"""The agent's server of a pod, and the workers' connections to it."""
