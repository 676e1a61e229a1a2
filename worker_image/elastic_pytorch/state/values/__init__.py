"""What a State keeps: registered objects, plain values, random number generators, and what differs from rank to rank."""
