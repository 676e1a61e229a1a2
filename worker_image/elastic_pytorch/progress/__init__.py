"""How far training is: reported, shown, and received by the agent."""
