"""Lightning's Trainer in an elastic job: `Trainer(**elastic_pytorch.lightning.options(folder, batch_size=48), max_epochs=3)`.

Needs Lightning, as `lightning` or as `pytorch_lightning`, which nothing else of this package does.
"""

from elastic_pytorch.lightning.callback import ElasticCallback
from elastic_pytorch.lightning.trainer_options import ElasticEnvironment, options

__all__ = ["ElasticCallback", "ElasticEnvironment", "options"]
