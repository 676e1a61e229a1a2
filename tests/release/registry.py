"""A registry on this machine, which hack/release/registry.sh builds."""

import contextlib
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import until

CONFIGURATION = """version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "{host}"}}
"""


@contextlib.contextmanager
def running_registry(folder: Path, address: str = "127.0.0.1") -> Iterator[str]:
    """Runs a registry at an address of this machine, without TLS; it keeps its content in a folder.

    Yields its host and port.
    """
    host = f"{address}:{free_port()}"
    configuration = folder / "configuration.yaml"
    configuration.write_text(CONFIGURATION.format(folder=folder / "content", host=host))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen(
            [ROOT / ".cluster/bin/registry", "serve", configuration], stdout=log, stderr=log
        )
        try:
            await_answer(f"http://{host}/v2/")
            yield host
        finally:
            process.terminate()
            process.wait(timeout=60)


def await_answer(url: str) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10):
            return True
        return False

    until(answers, f"an answer of {url}")
