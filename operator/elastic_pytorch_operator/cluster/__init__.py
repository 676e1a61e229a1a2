"""The API server as an interface, and the two that have it: the real one and one in memory."""
