#!/usr/bin/env bash
# Builds the pages as a site in .cluster/website/html, with a generator in a folder of its own.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

TOOLS=$STATE/website-tools
PINS="$SPHINX_VERSION-$MYST_VERSION-$FURO_VERSION-$MERMAID_VERSION"
MERMAID=$TOOLS/package/dist/mermaid.min.js

main() {
    [[ -f $TOOLS/$PINS ]] || step website-tools "Install Sphinx $SPHINX_VERSION, and what draws diagrams" install_tools
    local arguments=("$STATE/website")
    if [[ -f $MERMAID ]]; then arguments+=("$MERMAID"); fi
    step website "Build the site: .cluster/website/html/index.html" build "${arguments[@]}"
}

install_tools() {
    rm -rf "$TOOLS"
    .venv/bin/python -m pip install --quiet --target "$TOOLS" "sphinx==$SPHINX_VERSION" "myst-parser==$MYST_VERSION" "furo==$FURO_VERSION"
    if command -v npm >/dev/null && (cd "$TOOLS" && npm pack --silent "mermaid@$MERMAID_VERSION"); then
        tar --extract --gzip --file "$TOOLS/mermaid-$MERMAID_VERSION.tgz" --directory "$TOOLS" package/dist/mermaid.min.js
        touch "$TOOLS/$PINS"
    else
        echo "npm cannot be had: the site will show the text of diagrams."
    fi
}

build() {
    PYTHONPATH=$TOOLS .venv/bin/python hack/website "$@"
}

cd "$ROOT"
main
