"""Who checks its node together with whom.

A failed pair does not say which of its two nodes is at fault. So a worker that fails is checked again with a partner that has passed, as in
DLRover's node check. As long as none has passed, those that have failed are paired in another way.
"""

from collections.abc import Collection, Sequence

Pairs = tuple[tuple[str, ...], ...]


def pair_up(workers: Sequence[str]) -> Pairs:
    """Returns neighbours in pairs. The last of an odd number joins the pair before it; a single worker is alone."""
    pairs = [tuple(workers[first : first + 2]) for first in range(0, len(workers), 2)]
    if len(pairs) > 1 and len(pairs[-1]) == 1:
        pairs[-2:] = [(*pairs[-2], *pairs[-1])]
    return tuple(pairs)


def pair_again(suspects: Sequence[str], passed: Sequence[str], tried: Collection[frozenset[str]]) -> Pairs:
    """Returns in which pairs workers are checked again; those for whom no partner is left wait.

    Args:
        suspects: workers that have failed.
        passed: workers that have passed and are free.
        tried: groups that have been checked together. None of them is checked again, unless one of the two has passed since.

    Returns:
        The pairs, with a worker that has passed first. If there are none, each suspect alone.
    """
    pairs: list[tuple[str, ...]] = []
    free, without = list(passed), []
    for suspect in suspects:
        if free:
            pairs.append((free.pop(_first_untried(suspect, free, tried) or 0), suspect))
        else:
            without.append(suspect)
    while without:
        suspect = without.pop(0)
        if (found := _first_untried(suspect, without, tried)) is not None:
            pairs.append((suspect, without.pop(found)))
    return tuple(pairs) or tuple((suspect,) for suspect in suspects)


def _first_untried(worker: str, others: Sequence[str], tried: Collection[frozenset[str]]) -> int | None:
    """Returns the place of the first of the others with which a worker has not been checked; None: there is none."""
    return next((place for place, other in enumerate(others) if frozenset((worker, other)) not in tried), None)
