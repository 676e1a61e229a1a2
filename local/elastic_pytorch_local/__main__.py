"""`python -m elastic_pytorch_local job.yaml`."""

import sys

from elastic_pytorch_local.cli import main

sys.exit(main())
