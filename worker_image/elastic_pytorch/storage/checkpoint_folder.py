"""The checkpoint folder: the newest few files, and a claim that keeps a cut-off group out.

It is a folder, or a prefix in object storage. Standard library only, for the checkpoint writer.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from elastic_pytorch.log import logger
from elastic_pytorch.object_url import Location, ObjectUrl
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_format import (
    HEADER,
    TRAILER,
    Chunk,
    claim_name,
    claims_of,
    framed,
    name_of,
    payload_of,
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
    surplus([], version, keep)  # before anything is written
    place = place_at(folder)

    def check() -> None:
        refuse_claimed(place, place.names(), version)

    check()
    name = name_of(version)
    size = None if length is None else HEADER.size + length + TRAILER.size
    place.put(name, framed(version, chunks), size, check)
    names = place.names()
    refuse_claimed(place, names, version)
    found = sorted((at, each) for each in names if (at := version_of(each)) is not None)
    doomed = surplus((at for at, _ in found), version, keep)
    place.delete([each for at, each in found if at in doomed])
    place.clean(version.generation)
    return place.location / name


def newest(folder: Folder) -> Iterator[Checkpoint]:
    """Yields the whole checkpoints, newest first."""
    place = place_at(folder)
    for version, path in by_name(place):
        try:
            with closing(place.open(path.name)) as file:
                for _ in payload_of(file, version):
                    pass
        except (OSError, ValueError) as error:
            logger.warning("checkpoint %s is skipped: %s", path, error)
            continue
        yield Checkpoint(version, path)


def by_name(folder: Folder) -> list[Checkpoint]:
    """Returns the files with a checkpoint's name, newest first."""
    place = place_at(folder)
    found = [(version, name) for name in place.names() if (version := version_of(name)) is not None]
    return [
        Checkpoint(version, place.location / name) for version, name in sorted(found, reverse=True)
    ]


def newest_and_claimed(folder: Folder) -> tuple[StateVersion | None, int]:
    """Returns the newest version by name, and the claiming generation or 0."""
    names = place_at(folder).names()
    return max(filter(None, map(version_of, names)), default=None), max(
        claims_of(names).values(), default=0
    )


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


def refuse_claimed(place: Place, names: Iterable[str], version: StateVersion) -> None:
    generation = max(claims_of(names).values(), default=0)
    if generation > version.generation:
        raise Superseded(
            f"{place.location} is claimed by generation {generation}, "
            f"and this is generation {version.generation}"
        )
