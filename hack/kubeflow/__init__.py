"""Measures the same losses in a job of this operator and in a tuned PyTorchJob of Kubeflow's, side by side."""
