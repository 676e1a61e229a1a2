"""The objects that a job owns, from a job to a manifest. Pure."""
