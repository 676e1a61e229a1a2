"""The releases of frameworks that the tests of the library's adapters run on: the oldest and the newest that are supported."""

from typing import NamedTuple

NEWEST = ""  # torch of the lock file


class FrameworkRow(NamedTuple):
    """What is installed for a row, and what is run.

    Attributes:
        packages: as requirements.
        torch: its release; empty: the newest.
        tests: their folder.
    """

    packages: tuple[str, ...]
    torch: str
    tests: str


FRAMEWORKS = {
    "lightning-oldest": FrameworkRow(("lightning==2.5.0",), "2.5.1", "tests/frameworks/lightning"),
    "lightning-newest": FrameworkRow(("lightning==2.6.6",), NEWEST, "tests/frameworks/lightning"),
    # transformers 5.4 installs with Accelerate 1.1, but its Trainer passes arguments that 1.3 has first.
    "transformers-oldest": FrameworkRow(("transformers==5.4.0", "accelerate==1.3.0"), "2.4.1", "tests/frameworks/transformers"),
    "transformers-newest": FrameworkRow(
        ("transformers==5.23.0", "accelerate==1.15.0"), NEWEST, "tests/frameworks/transformers"
    ),
    "deepspeed-oldest": FrameworkRow(("deepspeed==0.17.0",), "2.8.0", "tests/frameworks/deepspeed"),
    "deepspeed-newest": FrameworkRow(("deepspeed==0.19.8",), NEWEST, "tests/frameworks/deepspeed"),
    # Releases before 0.3 have no loaders and checkpoint managers that a configuration could name.
    "torchtitan": FrameworkRow(("torchtitan==0.3.0",), NEWEST, "tests/frameworks/torchtitan"),
}
