"""Reports of a script's progress, and the agent's record of them."""
