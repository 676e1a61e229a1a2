"""What the pods of a job tell: how they started, which workers run in them, and what is wrong with them. Pure."""
