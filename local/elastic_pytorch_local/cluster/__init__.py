"""A cluster in memory, with the interface that the operator has to the API server."""
