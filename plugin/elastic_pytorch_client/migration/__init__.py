"""Turns manifests and batch scripts of other kinds into ElasticPyTorchJob manifests.

Pure: reads no file and asks no API server.
"""
