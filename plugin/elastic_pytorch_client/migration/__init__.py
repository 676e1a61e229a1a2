"""Turns manifests and batch scripts of other kinds into ElasticPyTorchJob manifests. Pure."""
