"""What has failed, how it counts, and what follows from it."""
