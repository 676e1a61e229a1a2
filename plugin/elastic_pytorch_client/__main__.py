"""`python -m elastic_pytorch_client` is `kubectl epj`."""

from elastic_pytorch_client.cli import main

main()
