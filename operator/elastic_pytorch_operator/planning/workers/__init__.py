"""Which workers are there, which are lost, and which pods there should be."""
