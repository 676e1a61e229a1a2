"""The kinds of job that are read: PyTorchJob, and TrainJob with its runtimes."""
