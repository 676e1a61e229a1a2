#!/usr/bin/env bash
# The demo on the cluster that `make install` has made; its arguments are those of hack/demo.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$ROOT/hack/small-venv.sh"

cd "$ROOT"
[[ $* != *lightning* ]] || hack/images/lightning.sh
ensure_python
PYTHONPATH=hack:operator:worker_image:plugin:local exec "$PYTHON" -m demo "$@"
