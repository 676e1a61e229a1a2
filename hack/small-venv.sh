# shellcheck shell=bash
# A Python for what needs no torch: that of .venv if `make venv` has made it, else that of a small environment. Sourced.

SMALL_VENV=$STATE/venv

# Sets PYTHON.
ensure_python() {
    local wanted
    PYTHON=$ROOT/.venv/bin/python
    [[ ! -e $ROOT/.venv/.made-from ]] || return 0
    PYTHON=$SMALL_VENV/bin/python
    wanted=$(fingerprint requirements.lock hack/small-venv.sh)
    [[ $(cat "$SMALL_VENV/.made-from" 2>/dev/null) != "$wanted" ]] || return 0
    one_at_a_time
    step small-venv "Make a small virtual environment" make_small_venv
    echo "$wanted" >"$SMALL_VENV/.made-from"
}

make_small_venv() {
    check_python
    rm -rf "$SMALL_VENV"
    # With the system's packages, as torch may be one of them.
    python3 -m venv --system-site-packages "$SMALL_VENV"
    "$PYTHON" -m pip install --disable-pip-version-check uv
    install_small --requirement requirements.lock rich
}

install_small() {
    "$SMALL_VENV/bin/uv" pip install --python "$PYTHON" "$@"
}
