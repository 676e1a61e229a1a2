"""The storage protocol of checkpoints, for folders and prefixes in object storage."""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from elastic_pytorch.object_url import Location, ObjectUrl, location_of
from elastic_pytorch.storage.checkpoint_format import Chunk, StoredFile
from elastic_pytorch.storage.local_folder import LocalFolder

TOKEN_FILE = "ELASTIC_PYTORCH_TOKEN_FILE"  # of the agent, on a volume in each operator's pod
MOUNTS = Path("/proc/self/mountinfo")


class Place(Protocol):
    """Holds checkpoints and claims, each under a name, whole or absent.

    All methods raise OSError where the storage fails.
    """

    @property
    def location(self) -> Location: ...
    def names(self) -> list[str]:
        """Returns nothing of a place that does not exist yet."""

    def sizes(self) -> dict[str, int]:
        """Returns bytes by name."""

    def folders(self) -> list[str]: ...

    def open(self, name: str) -> StoredFile:
        """Raises FileNotFoundError if there is no such file."""

    def put(
        self, name: str, chunks: Iterable[Chunk], size: int | None, check: Callable[[], object]
    ) -> None:
        """Stores a file, which replaces one of its name as a whole, or not at all.

        Each chunk is valid until the next one. Object storage needs the size in bytes for files of
        more than some 100 GB. `check` is called when all bytes are stored, before the file appears.
        """

    def create(self, name: str) -> bool:
        """Stores an empty file; False: it exists, where the storage can tell.

        Raises:
            CannotClaim: object storage has no conditional writes, or a file system no renames.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Deletes files, or logs why it cannot."""

    def clean(self, generation: int) -> None:
        """Deletes partial writes of older generations or long ago."""


def usable(folder: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Returns a script's folder, or raises early what shows without a request."""
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
    """Whether a folder is on a container's own disk, and not on a volume.

    Paths are absolute, without symbolic links. The agent's token is on a volume in a pod, but not
    in local mode. `mounts` are the lines of proc_pid_mountinfo(5).
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
    if not isinstance(folder, str | os.PathLike | ObjectUrl):
        return folder
    location = location_of(folder)
    if isinstance(location, ObjectUrl):
        # Only for those who keep checkpoints there.
        from elastic_pytorch.storage.object_store import ObjectStore  # noqa: PLC0415

        return ObjectStore(location)
    return LocalFolder(location)
