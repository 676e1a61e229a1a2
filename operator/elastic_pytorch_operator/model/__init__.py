"""What decisions are made from and what they ask for: frozen values. Pure."""
