"""A cluster in memory that notes its calls, fails on demand, and knows users."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from elastic_pytorch_local.cluster.in_memory import FakeCluster
from elastic_pytorch_operator.api.manifest import Manifest
from elastic_pytorch_operator.cluster.interface import ClusterError, PodIdentity, TokenKeys

P = ParamSpec("P")
Answer = TypeVar("Answer")


def _counted(
    verb: str, method: Callable[P, Awaitable[Answer]]
) -> Callable[P, Coroutine[Any, Any, Answer]]:
    """The same method of a CountedCluster, whose second argument is the resource."""
    signature = inspect.signature(method)

    async def counted(*arguments: P.args, **options: P.kwargs) -> Answer:
        given = signature.bind(*arguments, **options).arguments
        word, part = "try" if given.get("dry_run") else verb, given.get("subresource")
        call = f"{word} {given['resource'].kind}{f'/{part}' if part else ''}"
        given["self"]._called(call)
        if seconds := given["self"].call_seconds.get(call):
            await asyncio.sleep(seconds)
        return await method(*arguments, **options)

    return counted


class CountedCluster(FakeCluster):
    """A FakeCluster whose calls are noted, and may fail.

    Attributes:
        calls: such as `create Pod`, `try Pod` for a dry run, or `patch ElasticPyTorchJob/status`.
        call_seconds: by call, how long it takes before it is carried out.
        users: by token for the API server.
        readers: users, and paths that they may get.
    """

    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []
        self.call_seconds: dict[str, float] = {}
        self.users: dict[str, str] = {}
        self.readers: set[tuple[str, str]] = set()
        self._faults: dict[str, list[ClusterError]] = {}
        super().__init__(**options)

    def fail_next(self, verb: str, code: int, message: str = "injected", **status: Any) -> None:
        """Has the next use of a verb fail."""
        self._faults.setdefault(verb, []).append(ClusterError(code, message, **status))

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        if self._faults.get(verb):
            raise self._faults[verb].pop(0)

    list_all = _counted("list", FakeCluster.list_all)
    get = _counted("get", FakeCluster.get)
    create = _counted("create", FakeCluster.create)
    replace = _counted("replace", FakeCluster.replace)
    patch = _counted("patch", FakeCluster.patch)
    delete = _counted("delete", FakeCluster.delete)

    async def review_token(self, token: str, audience: str) -> PodIdentity | None:
        self._called("review_token")
        return await super().review_token(token, audience)

    async def review_user(self, token: str) -> Manifest | None:
        self._called("review_user")
        return {"username": self.users[token]} if token in self.users else None

    async def review_read(self, user: Manifest, path: str) -> bool:
        self._called("review_read")
        return (user["username"], path) in self.readers

    async def get_token_keys(self) -> TokenKeys:
        self._called("get_token_keys")
        return await super().get_token_keys()
