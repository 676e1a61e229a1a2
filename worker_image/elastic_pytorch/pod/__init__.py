"""The server of a pod, in the agent, and the workers' connections to it."""
