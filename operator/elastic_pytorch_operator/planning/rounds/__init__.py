"""When the group changes, and who is in it."""
