"""Controllers of other projects, on the cluster for as long as tests need them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.paths import ROOT

# The exit status of a script that can have neither the module of its project nor a source tree.
UNAVAILABLE = 3


@contextmanager
def installed(name: str) -> Iterator[None]:
    """What a script as hack/kueue.sh installs, and removes at the end; else tests are skipped."""
    script = ROOT / "hack" / f"{name}.sh"
    done = subprocess.run([script], check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(f"{name} cannot be had here; what hack/{name}.sh says above tells why")
    try:
        done.check_returncode()
        yield
    finally:
        subprocess.run([script, "remove"], check=True)
