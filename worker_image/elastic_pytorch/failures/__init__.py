"""What is known of a worker that has failed."""
