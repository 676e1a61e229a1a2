"""What users read of a job: its status, and its events."""
