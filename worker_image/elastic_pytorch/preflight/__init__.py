"""Checks of this pod's node, which the operator asks for before a group forms (`spec.preflight`)."""
