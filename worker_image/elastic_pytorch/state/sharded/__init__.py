"""The state of a model that is sharded over the ranks."""
