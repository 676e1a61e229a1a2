"""Replays a day's losses and reclaimed nodes to one training in several jobs, and says what they cost each."""
