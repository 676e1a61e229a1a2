"""The faults that a run makes, by what they are made to."""
