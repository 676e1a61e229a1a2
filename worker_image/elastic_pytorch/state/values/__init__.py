"""The values that a State keeps: objects, plain values and random number generators."""
