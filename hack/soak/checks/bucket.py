"""A checkpoint that a bucket has stored can be read, and no group begins before it. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from soak.checks.training import EFFECT_SECONDS, hits_near, unsaved
from soak.jobs import Expected
from soak.perform import Hit
from soak.timeline import Step, Stored, Violation, groups_of


def check_bucket(
    expected: Expected, steps: Sequence[Step], stored: Sequence[Stored], hits: Sequence[Hit]
) -> Iterator[Violation]:
    if not expected.bucket:
        return
    yield from _check_reads(expected, stored)
    objects = [(each.at, each.version[1]) for each in stored if each.version and not each.read]
    groups = groups_of(steps)
    for before, after in pairwise(groups):
        # A group that is cut off may still store something after its successor has read.
        cut_off = [hit.at for hit in hits_near(expected, before, after, hits) if hit.kind.isolates]
        until = min(before.last_at, after.first_at, *cut_off)
        kept = max((step for at, step in objects if at <= until), default=0)
        if after.first <= kept:
            text = f"group {after.number} began with step {after.first}, and step {kept} was stored"
            yield Violation(
                "no group begins behind a stored checkpoint", expected.name, after.first_at, text
            )
    last = max((step for _, step in objects), default=0)
    end = groups[-1].last_at if groups else 0.0
    excused = any(unsaved(expected, hit) and hit.until + EFFECT_SECONDS >= end for hit in hits)
    if last != expected.total and not excused:
        text = f"the last one stored is {last} of {expected.total}"
        yield Violation("the last step is stored", expected.name, end, text)


def _check_reads(expected: Expected, stored: Sequence[Stored]) -> Iterator[Violation]:
    for read in stored:
        before = (s.version for s in stored if s.version and not s.read and s.at < read.at)
        there = max(before, default=None)
        if read.read and there and (read.version is None or read.version < there):
            text = f"{read.version} was the newest that could be read, and {there} had been stored"
            yield Violation("a checkpoint can be loaded", expected.name, read.at, text)
