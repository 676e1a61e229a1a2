"""Writes that are tried together: which are sent, and what is known of them afterwards."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from elastic_pytorch_operator.cluster.interface import ClusterError
from elastic_pytorch_operator.planning.failed_writes import FailedWrite
from elastic_pytorch_operator.reconcile.attempts import Attempts

from tests.operator.builders import NOW


class Writes:
    """Writes by number; some fail."""

    def __init__(self, **errors: ClusterError) -> None:
        self.errors = errors
        self.sent: list[str] = []
        self.done: list[str] = []

    def named(self, *names: str) -> list[Callable[[], Awaitable[None]]]:
        return [self._write(name) for name in names]

    def _write(self, name: str) -> Callable[[], Awaitable[None]]:
        async def write() -> None:
            self.sent.append(name)
            if name in self.errors:
                raise self.errors[name]
            await asyncio.sleep(0.01)
            self.done.append(name)

        return write


async def test_all_are_waited_for_when_one_has_failed() -> None:
    writes, attempts = Writes(c=ClusterError(409, "exists")), Attempts({}, lambda: NOW)
    await attempts.attempt("pods", *writes.named("a", "b", "c", "d"))
    assert sorted(writes.done) == ["a", "b", "d"]
    assert attempts.failed["pods"].words == "the API server fails: exists"
    assert attempts.wrote


async def test_what_is_refused_once_is_not_asked_for_again() -> None:
    writes, attempts = Writes(a=ClusterError(403, "exceeded quota")), Attempts({}, lambda: NOW)
    await attempts.attempt("pods", *writes.named("a", "b", "c"))
    await attempts.attempt("delete x", *writes.named("x"))
    assert writes.sent == ["a", "x"], "another write is another matter"
    assert list(attempts.failed) == ["pods"]


@pytest.mark.parametrize("code", [0, 429])
async def test_api_server_that_does_not_answer_or_asks_for_a_rest_is_asked_no_more(code: int) -> None:
    error = ClusterError(code, "later", retry_after_seconds=4.0)
    writes, attempts = Writes(a=error), Attempts({}, lambda: NOW)
    await attempts.attempt("pods", *writes.named("a", "b"))
    await attempts.attempt("status", *writes.named("s"))
    assert writes.sent == ["a"]
    assert {write.retry_at for write in attempts.failed.values()} == {NOW + 4.0}
    assert attempts.errors == [error]


async def test_what_has_failed_before_is_left_until_its_time_has_come() -> None:
    before = FailedWrite("no", NOW + 5, lasting=True, reported=True)
    writes, attempts = Writes(), Attempts({"pods": before}, lambda: NOW)
    await attempts.attempt("pods", *writes.named("a"))
    assert (writes.sent, attempts.failed, attempts.wrote) == ([], {"pods": before}, False)
    later = Attempts({"pods": before}, lambda: NOW + 5)
    await later.attempt("pods", *writes.named("a"))
    assert (writes.sent, later.failed) == (["a"], {})


async def test_refusal_is_told_before_the_trouble_beside_it() -> None:
    writes = Writes(b=ClusterError(500, "slow"), c=ClusterError(403, "exceeded quota"))
    attempts = Attempts({}, lambda: NOW)
    await attempts.attempt("pods", *writes.named("a", "b", "c"))
    assert attempts.failed["pods"].words == "the API server refuses: exceeded quota"


async def test_what_the_api_server_itself_finds_malformed_is_known() -> None:
    attempts = Attempts({}, lambda: NOW)
    await attempts.attempt("pods", *Writes(a=ClusterError(422, 'Pod "x" is invalid: spec.y: Required value')).named("a"))
    assert attempts.malformed == 'Pod "x" is invalid: spec.y: Required value'


async def test_fault_of_the_operators_own_is_raised_when_all_has_been_waited_for() -> None:
    writes = Writes()

    async def broken() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError):
        await Attempts({}, lambda: NOW).attempt("pods", *writes.named("a"), broken, *writes.named("b"))
    assert writes.done == ["a", "b"]
