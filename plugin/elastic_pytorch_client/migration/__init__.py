"""Turns PyTorchJob and TrainJob manifests into ElasticPyTorchJob manifests. Pure: reads no file and asks no API server."""
