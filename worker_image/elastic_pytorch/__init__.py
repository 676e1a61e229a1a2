"""What a training script may import in the pods of an ElasticPyTorchJob.

Importing this package is cheap: it does not import torch.
"""

from elastic_pytorch.progress import report

__all__ = ["report"]
