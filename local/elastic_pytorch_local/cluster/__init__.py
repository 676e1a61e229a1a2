"""A cluster in memory, with the operator's interface of the API server."""
