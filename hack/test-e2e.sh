#!/usr/bin/env bash
# The tests on the kind cluster: first those that each keep to a namespace of their own, one module beside
# another; then those that break nodes, operators or the API server, one after the other. Arguments go to pytest.
set -euo pipefail

NO_TESTS_COLLECTED=5
ran=0
failed=0

run_tests() {
    local status=0
    .venv/bin/python -m pytest tests/e2e "$@" || status=$?
    # What the arguments ask for may lie on one side only.
    ((status == NO_TESTS_COLLECTED)) && return
    ran=1
    ((status == 0)) || failed=1
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RECORD_TIMES=.cluster/times/e2e.tsv
rm -f "$RECORD_TIMES"
# In the order of tests/e2e/conftest.py. With three processes, the tests wait for the cores.
run_tests -m "e2e and not long and not serial" --numprocesses 2 --dist loadfile --no-loadscope-reorder "$@"
run_tests -m "e2e and not long and serial" "$@"
((ran)) || exit "$NO_TESTS_COLLECTED"
exit "$failed"
