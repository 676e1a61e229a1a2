"""The progress of training: reported, shown, and received by the agent."""
