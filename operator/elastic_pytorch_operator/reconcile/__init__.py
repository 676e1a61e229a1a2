"""The loop: a job's key out of the queue, a plan made and carried out."""
