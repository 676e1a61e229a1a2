"""The share of its GPU hours that a job trains in a year of outages, under each policy."""
