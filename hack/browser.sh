#!/usr/bin/env bash
# What `make test-browser` needs: Debian's Chromium, playwright, which drives it, and axe, which checks accessibility.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"

PLAYWRIGHT=$STATE/browser
AXE=axe-playwright-python==$AXE_VERSION

main() {
    [[ -x /usr/bin/chromium ]] || step chromium "Install Chromium, if Debian's archive can be reached" install_chromium
    [[ -f $PLAYWRIGHT/$PLAYWRIGHT_VERSION ]] || step playwright "Install playwright $PLAYWRIGHT_VERSION" install_playwright
    [[ -f $PLAYWRIGHT/$AXE_SHA256 ]] || step axe "Install $AXE" install_axe
}

install_chromium() {
    if ! command -v apt-get >/dev/null || [[ $(id -u) -ne 0 ]]; then
        echo "Install Chromium as /usr/bin/chromium: without it, the tests of the page in a browser are skipped."
    elif ! { apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium; }; then
        echo "Chromium cannot be had: the tests of the page in a browser will be skipped."
    fi
}

install_playwright() {
    rm -rf "$PLAYWRIGHT"
    if .venv/bin/python -m pip install --quiet --target "$PLAYWRIGHT" "playwright==$PLAYWRIGHT_VERSION"; then
        touch "$PLAYWRIGHT/$PLAYWRIGHT_VERSION"
    else
        echo "Playwright cannot be had: the tests of the page in a browser will be skipped."
    fi
}

install_axe() {
    if .venv/bin/python -m pip install --quiet --target "$PLAYWRIGHT" --upgrade --no-deps --require-hashes \
        --requirement <(echo "$AXE --hash=sha256:$AXE_SHA256"); then
        touch "$PLAYWRIGHT/$AXE_SHA256"
    else
        echo "Axe cannot be had: the tests of the page's accessibility will be skipped."
    fi
}

cd "$ROOT"
main
