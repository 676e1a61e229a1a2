import threading
from collections.abc import Mapping

import pytest
from elastic_pytorch.agent import torchrun_handler

pytestmark = pytest.mark.torch


def test_stacks_of_many_workers_hold_up_no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = threading.Event(), threading.Event()

    def dump_stacks(_: Mapping[int, str]) -> None:
        begun.set()
        assert ended.wait(10), "the link's thread goes on meanwhile"

    monkeypatch.setattr(torchrun_handler, "dump_stacks", dump_stacks)
    torchrun_handler._dump_stacks()
    assert begun.wait(10)
    ended.set()
