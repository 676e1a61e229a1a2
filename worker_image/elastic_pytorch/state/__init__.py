"""The state of a training: its commits, and its restoration."""
