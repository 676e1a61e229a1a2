#!/usr/bin/env bash
# Builds the workers' image with object storage, client and server, and puts it on the nodes.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../settings.sh"
source "$ROOT/hack/images/build.sh"

# obstore, and what moto's server needs.
PACKAGES='^(obstore|moto|boto3|botocore|s3transfer|jmespath|python-dateutil|six|responses|xmltodict|py-partiql-parser|pyyaml|requests|urllib3|certifi|idna'
PACKAGES+='|charset-normalizer|cryptography|cffi|pycparser|flask|flask-cors|werkzeug|jinja2|markupsafe|itsdangerous|blinker|click|typing-extensions)=='

cd "$ROOT"
build_on_workers object-storage "$PACKAGES" hack/images/object-storage.Dockerfile
load_if_missing object-storage-load elastic-pytorch-worker-object-storage:dev --whole "${NODES[@]}"
