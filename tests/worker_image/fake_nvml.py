"""A stand-in for the driver's management library, which a C compiler makes of `fake_nvml.c`, and the events that it reports."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc makes the stand-in for NVIDIA's library")


class FakeNvml:
    """The library in a folder of its own, under its own name.

    Args:
        directory: where to make it.

    Attributes:
        library: its path.
        events: the file that it reads events from.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.library = directory / "libnvidia-ml.so.1"
        self.events = directory / "events"
        self.events.touch()
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", self.library, SOURCE], check=True)

    @property
    def environment(self) -> dict[str, str]:
        """For a process whose dynamic linker is to find the library."""
        return {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML": str(self.events)}

    def report(self, *events: str) -> None:
        with self.events.open("a") as file:
            file.writelines(f"{event}\n" for event in events)
