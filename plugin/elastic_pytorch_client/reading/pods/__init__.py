"""What the pods of a job tell: which workers run in them, and what is wrong with them. Pure."""
