"""The checkpoint folder: the newest few files, and a claim that keeps a cut-off group out.

It is a folder, or a prefix in object storage. Standard library only, for the checkpoint writer.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from elastic_pytorch.object_url import Location, ObjectUrl
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_format import (
    FILE,
    HEADER,
    TRAILER,
    Chunk,
    claim_name,
    claims_of,
    framed,
    name_of,
    version_of,
)
from elastic_pytorch.storage.places import Place, place_at
from elastic_pytorch.storage.retention import Keep, surplus

Folder = str | os.PathLike[str] | ObjectUrl | Place


class Superseded(Exception):
    """A newer group has claimed the folder."""


class Checkpoint(NamedTuple):
    version: StateVersion
    path: Location


def write(
    folder: Folder,
    version: StateVersion,
    chunks: Iterable[Chunk],
    keep: Keep,
    length: int | None = None,
) -> Location:
    """Writes a checkpoint, and deletes older ones when it is safe in the storage.

    No checkpoint appears if the chunks raise. `keep` counts this checkpoint, but not larger
    versions, which stay. `length` is the payload's in bytes, see `Place.put`. If a larger
    generation has claimed the folder (`Superseded`), or the write fails, nothing is deleted.
    """
    place, name = place_at(folder), name_of(version)
    refuse_claimed(place, version)
    size = None if length is None else HEADER.size + length + TRAILER.size
    place.put(name, framed(version, chunks), size, lambda: refuse_claimed(place, version))
    found = filter(None, map(version_of, refuse_claimed(place, version)))
    place.delete([name_of(each) for each in sorted(surplus(found, version, keep))])
    place.clean(version.generation)
    return place.location / name


def by_name(folder: Folder, kind: str = FILE) -> list[Checkpoint]:
    """Returns what has a checkpoint's name, newest first."""
    place = place_at(folder)
    names = place.names() if kind == FILE else place.folders()
    found = [(version, name) for name in names if (version := version_of(name, kind)) is not None]
    return [
        Checkpoint(version, place.location / name) for version, name in sorted(found, reverse=True)
    ]


def newest_and_claimed(folder: Folder) -> tuple[StateVersion | None, int]:
    """Returns the newest version by name, and the claiming generation or 0."""
    names = place_at(folder).names()
    return max(filter(None, map(version_of, names)), default=None), _claiming(names)


def claim(folder: Folder, generation: int) -> int:
    """Claims the folder for groups of the returned generation or a larger one.

    Object storage returns a larger one than requested, if another group has just claimed that.
    """
    place = place_at(folder)
    while not place.create(claim_name(generation)):
        generation += 1
    # These have no effect any more.
    place.delete([name for name, older in claims_of(place.names()).items() if older < generation])
    return generation


def claimed(folder: Folder) -> int:
    return newest_and_claimed(folder)[1]


def refuse_claimed(folder: Folder, version: StateVersion) -> list[str]:
    """Returns the names in a folder, unless a larger generation has claimed it."""
    place = place_at(folder)
    names = place.names()
    if (generation := _claiming(names)) > version.generation:
        raise Superseded(
            f"{place.location} is claimed by generation {generation}, "
            f"and this is generation {version.generation}"
        )
    return names


def _claiming(names: Iterable[str]) -> int:
    return max(claims_of(names).values(), default=0)
