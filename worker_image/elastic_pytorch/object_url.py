"""URLs of object storage that holds checkpoints. Standard library only."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

SCHEMES = ("s3", "gs")

# A Path has merged the slashes.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)(.*)", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_SEGMENT = re.compile(r"[A-Za-z0-9_=+,@:.-]+")


@dataclass(frozen=True, slots=True, order=True)
class ObjectUrl:
    """The URL of an object, or of a prefix with objects below it."""

    scheme: str  # one of `SCHEMES`
    bucket: str
    key: str  # without a slash at either end; empty: the bucket itself

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2] or self.bucket

    @property
    def parent(self) -> "ObjectUrl":
        return ObjectUrl(self.scheme, self.bucket, self.key.rpartition("/")[0])

    def __truediv__(self, name: str) -> "ObjectUrl":
        return ObjectUrl(self.scheme, self.bucket, f"{self.key}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")


Location = Path | ObjectUrl  # of a folder, or of a file in it


def location_of(place: "str | os.PathLike[str] | ObjectUrl") -> Location:
    """Raises ValueError for a URL at which checkpoints cannot be kept."""
    if isinstance(place, ObjectUrl):
        return place
    text = os.fspath(place)
    match = _URL.match(text)
    if match is None:
        return Path(text)
    scheme, slash, rest = match.groups()
    if scheme.lower() not in SCHEMES:
        raise ValueError(
            f"{text!r}: a URL is not a folder, and would become one on the container's own disk. "
            "Checkpoints are kept in a folder, or in object storage: "
            f"{', '.join(f'{each}://BUCKET/PREFIX' for each in SCHEMES)}"
        )
    if not slash:
        raise ValueError(
            f"{text!r}: a Path merges the slashes of a URL: give it as text, {scheme}://{rest}"
        )
    bucket, _, key = rest.partition("/")
    key = key.rstrip("/")
    if "?" in rest or "@" in bucket or ":" in bucket:
        raise ValueError(
            f"the URL of {scheme}://{bucket.rpartition('@')[2].partition('?')[0]} has more than a "
            "bucket and a prefix: credentials and endpoints belong in the pod's environment"
        )
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{text!r}: {bucket!r} cannot be the name of a bucket")
    for segment in key.split("/") if key else ():
        if not _SEGMENT.fullmatch(segment) or segment in {".", ".."}:
            raise ValueError(
                f"{text!r}: {segment!r} cannot be a part of a prefix, which is of letters, "
                "digits and the characters _ = + , @ : . -"
            )
    return ObjectUrl(scheme.lower(), bucket, key)
