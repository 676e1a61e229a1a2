"""The check of nodes before a group forms: who checks with whom, what the measurements mean, and what follows."""
