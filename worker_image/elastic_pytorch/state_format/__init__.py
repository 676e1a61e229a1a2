"""A committed state as bytes, and its version."""
