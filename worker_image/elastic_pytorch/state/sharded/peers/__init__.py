"""Each pod's shards in the memory of another pod too: who keeps whose, how they get there, and who has what after a loss."""
