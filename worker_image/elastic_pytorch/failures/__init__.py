"""What is known of a failed worker."""
