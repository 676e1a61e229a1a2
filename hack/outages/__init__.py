"""Says what share of its GPU hours a job trains through a year of recorded outages, under each policy."""
