"""What speaks against nodes: which ones new pods avoid, and which workers leave theirs."""
