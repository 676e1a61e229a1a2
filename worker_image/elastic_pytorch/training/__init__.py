"""The training loop and the samples of each step."""
