"""Which checkpoints of a folder are whole, and their bytes. Standard library only."""

from collections.abc import Iterator
from contextlib import closing

from elastic_pytorch.object_url import Location
from elastic_pytorch.storage.checkpoint_folder import Checkpoint, Folder, by_name
from elastic_pytorch.storage.checkpoint_format import HEADER, read_frame
from elastic_pytorch.storage.places import place_at


def newest(folder: Folder) -> Iterator[Checkpoint]:
    """Yields the whole checkpoints, newest first. It never holds one as a whole."""
    for checkpoint in by_name(folder):
        try:
            with closing(place_at(folder).open(checkpoint.path.name)) as file:
                version, length, checksum = read_frame(file)
                whole = file.checksum(HEADER.size + length, []) == checksum
        except (OSError, ValueError):
            continue
        if whole and version == checkpoint.version:
            yield checkpoint


def payload_of(path: Location) -> bytes:
    with closing(place_at(path.parent).open(path.name)) as file:
        _, length, checksum = read_frame(file)
        payload = bytearray(length)
        file.read_into(HEADER.size, memoryview(payload))
        assert file.checksum(HEADER.size + length, []) == checksum
    return bytes(payload)
