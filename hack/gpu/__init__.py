"""What a change of the group costs on one CUDA card: see __main__.py."""
