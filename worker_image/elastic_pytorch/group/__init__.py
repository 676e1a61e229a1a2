"""The group of processes: joined, left and changed within the living process."""
