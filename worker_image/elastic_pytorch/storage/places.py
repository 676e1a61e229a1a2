"""The storage protocol: what checkpoints need of the place where they lie, be it a folder or a prefix in object storage."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from elastic_pytorch.object_url import Location, ObjectUrl, location_of
from elastic_pytorch.storage.checkpoint_format import Chunk, StoredFile
from elastic_pytorch.storage.local_folder import LocalFolder

TOKEN_FILE = "ELASTIC_PYTORCH_TOKEN_FILE"  # of the agent, on a volume in each pod of the operator
MOUNTS = Path("/proc/self/mountinfo")


class Place(Protocol):
    """Where checkpoints and claims lie, each under a name, whole or absent.

    All of it raises OSError where the storage fails.
    """

    @property
    def location(self) -> Location: ...
    def names(self) -> list[str]:
        """Returns the names of what is there; of a place that does not exist yet, none."""

    def sizes(self) -> dict[str, int]:
        """Returns what is known of each file that is there without reading it, by its name."""

    def folders(self) -> list[str]:
        """Returns the names of the places directly below."""

    def open(self, name: str) -> StoredFile:
        """Opens a file to read ranges of it.

        Raises:
            FileNotFoundError: there is none of that name.
        """

    def put(
        self, name: str, chunks: Iterable[Chunk], size: int | None, check: Callable[[], None]
    ) -> None:
        """Stores a file, which appears whole, or not at all if anything raises.

        Args:
            name: of the file; one that is there is replaced.
            chunks: its bytes. A chunk is valid until the next one is asked for.
            size: of all chunks, in bytes, if it is known: object storage needs it for files of more
                than some 100 GB.
            check: called when all bytes are stored, before the file appears.
        """

    def create(self, name: str) -> bool:
        """Stores an empty file; returns False if there was one, where the storage can tell.

        Raises:
            CannotClaim: object storage does not know conditional writes, or a file system cannot
                rename.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files. What cannot be deleted stays, with a warning in the log."""

    def clean(self, generation: int) -> None:
        """Deletes what writes that were cut short have left, of older generations or long ago."""


def usable(folder: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Returns a script's folder, or raises what would go wrong with it later, as far as that shows without a request.

    Raises:
        ValueError: it is not the name of a place, see also `place_at`.
        ImportError: see `place_at`.
    """
    if folder is None:
        return None
    text = os.fspath(folder)
    if not text:
        raise ValueError('the folder is "": give a path or a URL, or None to keep no checkpoints')
    if text.startswith("~") or "$" in text:
        raise ValueError(
            f"{text!r}: only a shell reads ~ and $ as folders, and this would become one in the "
            "container. Use os.path.expanduser, or os.environ"
        )
    if isinstance(place_at(folder), LocalFolder) and _is_of_this_container(text):
        raise ValueError(
            f"{text} is on the container's own disk, which other pods do not see, "
            "and which is gone with the pod: give a path on a volume that all pods share, "
            "or a URL such as s3://BUCKET/PREFIX, or None to keep no checkpoints"
        )
    return folder


def is_of_container(folder: str, *, token_folder: str, mounts: str) -> bool:
    """Whether a folder is on the own disk of a pod's container, and not on a volume.

    Args:
        folder: its absolute path, without symbolic links.
        token_folder: the same of the agent's token. In a pod it is a volume; in local mode it is a
            folder like any other.
        mounts: the lines of Linux, see proc_pid_mountinfo(5).
    """
    points = [line.split()[4] for line in mounts.splitlines()]
    mounted = {re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), each) for each in points}
    above = (str(each) for each in (Path(folder), *Path(folder).parents))
    return token_folder in mounted and next(filter(mounted.__contains__, above), "/") == "/"


def _is_of_this_container(folder: str) -> bool:
    token_file = os.environ.get(TOKEN_FILE)
    if not token_file or not MOUNTS.exists():
        return False
    return is_of_container(
        os.path.realpath(folder),
        token_folder=os.path.realpath(Path(token_file).parent),
        mounts=MOUNTS.read_text(errors="replace"),
    )


def place_at(folder: "str | os.PathLike[str] | ObjectUrl | Place") -> Place:
    """Returns the place of a path or a URL; one that is a place already as it is.

    Raises:
        ValueError: it is a URL that checkpoints cannot be kept at.
        ImportError: what object storage needs is not installed.
    """
    if not isinstance(folder, str | os.PathLike | ObjectUrl):
        return folder
    location = location_of(folder)
    if isinstance(location, ObjectUrl):
        from elastic_pytorch.storage.object_store import ObjectStore  # noqa: PLC0415 - for those who keep checkpoints there

        return ObjectStore(location)
    return LocalFolder(location)
