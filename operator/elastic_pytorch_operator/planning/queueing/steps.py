"""For how many workers each extra Workload of a job asks: one, or as many as lead to the next allowed size."""

from itertools import pairwise

from elastic_pytorch_operator.spec.job import Job


def extra_counts(job: Job, base: int) -> tuple[int, ...]:
    """The counts of the extras, in the order of their numbers.

    Args:
        job: with the wanted size, and the allowed ones.
        base: for how many workers the base may be used.
    """
    sizes = job.allowed or range(base + 1, job.wanted + 1)
    rising = [base, *(size for size in sizes if base < size <= job.wanted)]
    return tuple(after - before for before, after in pairwise(rising))
