"""An ElasticPyTorchJob's spec: parsed once, checked, with defaults filled in. Pure."""
