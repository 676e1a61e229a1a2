"""Each pod's shards in the memory of another pod, too."""
