"""What a job asks of Kueue, and what it does with what Kueue grants."""
