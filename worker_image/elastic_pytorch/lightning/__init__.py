"""Lightning's Trainer in an elastic job: `Trainer(**elastic_pytorch.lightning.options(folder))`.

It needs Lightning, as `lightning` or as `pytorch_lightning`.
"""

from elastic_pytorch.lightning.callback import ElasticCallback
from elastic_pytorch.lightning.trainer_options import ElasticEnvironment, options

__all__ = ["ElasticCallback", "ElasticEnvironment", "options"]
