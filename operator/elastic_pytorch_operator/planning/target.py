"""How many workers a job is to have now: as many as its spec asks for, and as have quota.

A plan makes this value once, and hands it down. The job stays its spec as written.
"""

from dataclasses import dataclass

from elastic_pytorch_operator.planning.queueing.quota import NO_LIMIT, Quota


@dataclass(frozen=True, slots=True)
class Target:
    wanted: int  # by its spec; 0 while it is suspended
    quota: Quota = NO_LIMIT
    spares: int = 0  # pods beyond these that wait for a loss

    @property
    def size(self) -> int:
        """How many workers may run: the size that its rounds and its checks are planned for."""
        return self.quota.size if self.quota.limited else self.wanted

    @property
    def pods(self) -> int:
        """How many worker pods there are to be: the workers, and as many spares as have quota."""
        whole = self.size + self.spares
        return 0 if self.stopped else min(whole, self.quota.pods) if self.quota.limited else whole

    @property
    def stopped(self) -> bool:
        """Whether no worker may run, as the job is suspended or has no quota: its group saves and stops, and its pods go."""
        return self.size == 0

    @property
    def held(self) -> bool:
        """Whether no worker may run only because there is no quota for any."""
        return self.wanted > 0 and self.stopped
