"""`python -m elastic_pytorch_operator`."""

import sys

from elastic_pytorch_operator.cli import main

sys.exit(main())
