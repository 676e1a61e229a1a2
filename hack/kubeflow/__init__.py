"""Measures losses in jobs of this operator and a tuned PyTorchJob of Kubeflow's, side by side."""
