"""The state of a model that is sharded over the ranks, in a folder that all of them share."""
