"""Lists the checkpoints of folders, and of prefixes in object storage: what their names and sizes say. No checkpoint is read.

    python -m elastic_pytorch.storage.listing FOLDER…

This prints JSON, for `kubectl epj checkpoints`, which runs it in a pod of the job. It needs no torch.
"""

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from elastic_pytorch.object_url import Location, location_of
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_format import FileFacts, name_of, version_of
from elastic_pytorch.storage.places import place_at
from elastic_pytorch.storage.sharded_folder import checkpoint_name, version_of_folder

FILE, SHARDED = "file", "sharded"


class Listed(NamedTuple):
    """A checkpoint, as it is listed.

    Attributes:
        version: of the state.
        name: in its folder.
        format: `FILE`, or `SHARDED`.
        size: of all its files, in bytes.
        written_at: when the last one was written, in seconds since the epoch; 0: it has none.
        complete: whether it has what is written last. Otherwise it is being written, or that was cut short.
    """

    version: StateVersion
    name: str
    format: str
    size: int
    written_at: float
    complete: bool


def list_checkpoints(folder: Location) -> list[Listed]:
    """Returns the checkpoints of both formats, the newest first.

    Raises:
        ValueError: it is a URL that checkpoints cannot be kept at.
        ImportError: what object storage needs is not installed.
        OSError: it cannot be read. A missing folder is not an error: it has no checkpoints.
    """
    place = place_at(folder)
    found = [
        Listed(version, name, FILE, *facts, complete=True)
        for name, facts in place.files().items()
        if (version := version_of(name)) is not None
    ]
    for name in place.folders():
        if (version := version_of_folder(name)) is None:
            continue
        files = _files_below(folder / name)
        complete = name == checkpoint_name(version) and name_of(version) in files
        size, written_at = (
            sum(each.size for each in files.values()),
            max((each.written_at for each in files.values()), default=0.0),
        )
        found.append(Listed(version, name, SHARDED, size, written_at, complete))
    return sorted(found, reverse=True)


def _files_below(folder: Location, prefix: str = "") -> dict[str, FileFacts]:
    place = place_at(folder)
    found = {f"{prefix}{name}": facts for name, facts in place.files().items()}
    for name in place.folders():
        found |= _files_below(folder / name, f"{prefix}{name}/")
    return found


def describe(folder: str) -> dict[str, object]:
    """Returns what a folder has, as JSON can say it; or `error`, why it cannot be listed."""
    try:
        found = list_checkpoints(location_of(folder))
    except OSError as error:
        return {"place": folder, "error": error.strerror or str(error)}
    except (ValueError, ImportError) as error:
        return {"place": folder, "error": str(error)}
    return {"place": folder, "checkpoints": list(map(_described, found))}


def _described(listed: Listed) -> dict[str, object]:
    moment = datetime.fromtimestamp(listed.written_at, timezone.utc) if listed.written_at else None
    return {
        "step": listed.version.step,
        "generation": listed.version.generation,
        "name": listed.name,
        "format": listed.format,
        "bytes": listed.size,
        "written": moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None,
        "complete": listed.complete,
    }


def main(folders: Sequence[str]) -> None:
    """Prints what folders have, one entry for each."""
    print(json.dumps([describe(folder) for folder in folders]))


if __name__ == "__main__":
    main(sys.argv[1:])
