"""The state of a training: what is committed, when, and how it is found again."""
