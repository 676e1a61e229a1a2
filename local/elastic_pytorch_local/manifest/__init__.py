"""What a manifest says, and what of it holds on this machine."""
