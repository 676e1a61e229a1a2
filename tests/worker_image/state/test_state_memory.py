"""States in agents' memory: each finds its own, rank 0's values too, and leaves nothing over."""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.memory.mapped_state import MappedState
from elastic_pytorch.memory.snapshot import Snapshot
from elastic_pytorch.pod.client import PodClient
from elastic_pytorch.pod.messages import LOCAL_SOCKET
from elastic_pytorch.pod.server import PodServer
from elastic_pytorch.state_format.state_version import StateVersion
from torch import nn

from tests.worker_image.open_files import count_descriptors, identity
from tests.worker_image.torch_group import RunningGroup, running_group

pytestmark = [pytest.mark.process, pytest.mark.torch]
STEPS = 3


@contextmanager
def pods(count: int) -> Iterator[list[PodServer]]:
    """What so many agents hold."""
    with ExitStack() as stack:
        servers = [PodServer() for _ in range(count)]
        for server in servers:
            server.prepare()
            server.start()
            stack.callback(server.close)
        yield servers


def run_pods(servers: list[PodServer], workers: int, function: Any, *arguments: Any) -> list[Any]:
    """What a function returns in a group of so many workers in each pod, by rank."""
    with running_in_pods(servers, workers, function, *arguments) as group:
        return group.outcomes()


def running_in_pods(
    servers: list[PodServer], workers: int, function: Any, *arguments: Any
) -> AbstractContextManager[RunningGroup]:
    """A group of that many workers in each pod, which runs a function."""
    paths = [server.path for server in servers]
    return running_group(len(servers) * workers, in_pod, paths, workers, function, *arguments)


def in_pod(paths: list[str], workers: int, function: Any, *arguments: Any) -> Any:
    os.environ["LOCAL_WORLD_SIZE"] = str(workers)
    os.environ[LOCAL_SOCKET] = paths[dist.get_rank() // workers]
    return function(*arguments)


def weights(model: nn.Module) -> list[float]:
    return [number for parameter in model.parameters() for number in parameter.flatten().tolist()]


def take_steps(state: elastic.State, model: nn.Module, upto: int) -> None:
    while state.step < upto:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        state.commit()


def train_folds(folds: int, unfinished: int) -> list[tuple[int, float]]:
    """Folds one after the other; for each, the step and a weight that it has begun with."""
    begun = []
    for fold in range(folds):
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, 100.0 * fold)
        state = elastic.State(None, elastic.State.Options(every=1, total_steps=STEPS), model=model)
        begun.append((state.restore(), model.weight.item()))
        take_steps(state, model, unfinished if fold == folds - 1 else STEPS)
    return begun


def test_each_training_of_a_row_begins_fresh_and_goes_on_from_its_own_after_a_restart() -> None:
    with pods(2) as servers:
        assert run_pods(servers, 1, train_folds, 3, 1) == [[(0, 0.0), (0, 100.0), (0, 200.0)]] * 2
        assert (
            run_pods(servers, 1, train_folds, 3, 2)
            == [[(STEPS, 3.0), (STEPS, 103.0), (1, 201.0)]] * 2
        )


def train_two_at_once(folder: Path | None) -> list[tuple[int, float]]:
    models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    for number, model in enumerate(models):
        nn.init.constant_(model.weight, 100.0 * number)
    states = [
        elastic.State(folder, elastic.State.Options(every=1, name=name), model=model)
        for name, model in zip(("actor", "critic"), models, strict=True)
    ]
    begun = [
        (state.restore(), model.weight.item()) for state, model in zip(states, models, strict=True)
    ]
    for state, model in zip(states, models, strict=True):
        take_steps(state, model, state.step + 2)
        assert state.flush()
    return begun


@pytest.mark.parametrize("on_disk", [False, True])
def test_two_models_at_once_do_not_write_over_each_other(on_disk: bool, tmp_path: Path) -> None:
    folder = tmp_path if on_disk else None
    with pods(1) as servers:
        assert run_pods(servers, 1, train_two_at_once, folder) == [[(0, 0.0), (0, 100.0)]]
        if not on_disk:
            assert run_pods(servers, 1, train_two_at_once, folder) == [[(2, 2.0), (2, 102.0)]]
    if on_disk:
        with pods(1) as servers:
            assert run_pods(servers, 1, train_two_at_once, folder) == [[(2, 2.0), (2, 102.0)]]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["actor", "critic"]


def train_again_in_the_folder(folder: Path, close: bool) -> Any:
    def train() -> int:
        model = nn.Linear(1, 1)
        state = elastic.State(folder, elastic.State.Options(every=1), model=model)
        begun = state.restore()
        take_steps(state, model, begun + 2)
        if close:
            state.close()
            with pytest.raises(RuntimeError, match="is closed"):
                state.restore()
        return begun

    first = train()
    gc.collect()
    try:
        return first, train()
    except RuntimeError as error:
        return str(error)


def test_second_training_in_a_folder_is_refused_or_goes_on_if_the_first_is_closed(
    tmp_path: Path,
) -> None:
    with pods(1) as servers:
        (words,) = run_pods(servers, 1, train_again_in_the_folder, tmp_path / "one", False)
        assert "already: give each training a name= or a folder of its own" in words
        assert run_pods(servers, 1, train_again_in_the_folder, tmp_path / "two", True) == [(0, 2)]


class Sums:
    """An optimizer of one's own, which keeps the very tensors that it loads."""

    def __init__(self) -> None:
        self.total = torch.zeros(5000)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def train_with_values(steps: int) -> tuple[int, float, list[int], float, list[float]]:
    """Rank 0 alone computes what is best, as most scripts do."""
    torch.manual_seed(dist.get_rank())
    model, sums = nn.Linear(3, 3), Sums()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    weights_of_best = torch.zeros(2)
    state = elastic.State(
        None,
        elastic.State.Options(every=1),
        model=model,
        optimizer=optimizer,
        sums=sums,
        best=0.0,
        history=[],
        weights_of_best=weights_of_best,
    )
    begun = state.restore()
    found = (
        begun,
        state.best,
        list(state.history),
        float(state.weights_of_best.sum()),
        weights(model) + sums.total[:2].tolist(),
    )
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        sums.total += 1
        if dist.get_rank() == 0:
            state.best = state.step + 1.5
            state.history.append(state.step)
            state.weights_of_best += 1
        state.commit()
    return found


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_values_that_only_rank_0_sets_outlive_its_pod(workers: int) -> None:
    with pods(3) as servers:
        run_pods(servers, workers, train_with_values, 4)
        found = run_pods(servers[1:], workers, train_with_values, 2)
        assert len({repr(each) for each in found}) == 1, "all ranks go on from the same"
        assert found[0][:4] == (4, 4.5, [0, 1, 2, 3], 8.0)
        assert found[0][4][-2:] == [4.0, 4.0]
        found = run_pods([servers[2], servers[0], servers[1]], workers, train_with_values, 0)
        assert len({repr(each) for each in found}) == 1
        assert found[0][:4] == (6, 6.5, [0, 1, 2, 3, 4, 5], 12.0)
        assert found[0][4][-2:] == [6.0, 6.0]


def lose_a_rank_in_step(lost: int, values: dict[str, Any]) -> None:
    """Commits two steps; all ranks but one also end the third one."""
    model = nn.Linear(1, 1)
    state = elastic.State(None, elastic.State.Options(every=1), model=model, **values)
    state.restore()
    take_steps(state, model, 2)
    if dist.get_rank() == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError):  # the peer is lost
        take_steps(state, model, 3)


def find_step(values: dict[str, Any]) -> int:
    return elastic.State(None, model=nn.Linear(1, 1), **values).restore()


@pytest.mark.parametrize("values", [{}, {"evaluated": []}], ids=["no values", "values"])
@pytest.mark.parametrize("lost", [0, 1])
def test_step_in_whose_body_a_rank_is_lost_is_done_again(lost: int, values: dict[str, Any]) -> None:
    with pods(2) as servers:
        with running_in_pods(servers, 1, lose_a_rank_in_step, lost, values) as group:
            assert group.exit_codes()[lost] == -signal.SIGKILL
        assert run_pods(servers, 1, find_step, values) == [2, 2], (
            "what the lost rank still had to do belongs to step 3"
        )


def flush_amid_steps(folder: Path) -> list[int]:
    state = elastic.State(folder, model=nn.Linear(1, 1), best=0.0)
    state.restore()
    state._interval.steps = 3  # as if a commit were too dear for each step
    committed = []
    while state.step < 12:
        if dist.get_rank() == 0:
            state.best = state.step + 1.0
        state.commit()
        committed.append(state._version.step)
        if state.step == 5:
            assert state.flush()
    return committed


def test_all_go_on_committing_the_same_steps_after_a_flush(tmp_path: Path) -> None:
    with pods(2) as servers:
        first, other = run_pods(servers, 1, flush_amid_steps, tmp_path)
    assert first == other


def restore_in_a_full_agent(names: int) -> str:
    link, fd = PodClient.connect(), os.memfd_create("x")
    for number in range(names):
        link.keep_memory(f"other {number}", fd)
    assert link.fetch(f"other {names - 1}") is not None, (
        "the agent has all of them before the state comes by a connection of its own"
    )
    try:
        elastic.State(None, model=nn.Linear(1, 1)).restore()
    except OSError as error:
        return str(error)
    return "restored"


def test_memory_that_the_agent_does_not_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastic_pytorch.pod.server.MAX_HELD", 20)
    with pods(1) as servers:
        (words,) = run_pods(servers, 1, restore_in_a_full_agent, 20)
    assert (
        words
        == "the agent does not keep this training's state: the local server refuses: ValueError: "
        "too many names"
    )


def sweep(folder: Path) -> None:
    for fold in range(6):
        model = nn.Linear(1, 1)
        state = elastic.State(folder / str(fold), elastic.State.Options(every=1), model=model)
        state.restore()
        take_steps(state, model, 2)
        assert state.flush()


def sweep_without_folders() -> None:
    for _ in range(6):
        model = nn.Linear(1, 1)
        state = elastic.State(None, elastic.State.Options(every=1), model=model)
        state.restore()
        take_steps(state, model, 2)
        state.close()
    state = elastic.State(None, elastic.State.Options(every=1), model=model)
    state.restore()
    take_steps(state, model, 1)


def held(server: PodServer) -> int:
    assert server.drain(60), "it has read what was said last"
    return len(server._held)


def test_memory_of_trainings_that_are_over_is_given_back(tmp_path: Path) -> None:
    with pods(2) as servers:
        run_pods(servers, 1, sweep, tmp_path)
        assert [held(server) for server in servers] == [1, 1], "the last one"
    with pods(2) as servers:
        run_pods(servers, 1, sweep_without_folders)
        assert [held(server) for server in servers] == [1, 1], (
            "the end of a process gives nothing back"
        )


def test_what_is_kept_of_a_mapped_state_is_not_changed_by_later_commits() -> None:
    snapshot = Snapshot.create("test")
    snapshot.write(
        StateVersion(1, 1),
        {
            "kept": torch.full((5000,), 1.0),
            "random": torch.get_rng_state(),
            "left": torch.ones(7),
            "none": torch.empty(0),
            "one": torch.tensor(3),
        },
    )
    mapped = MappedState(snapshot.fd)
    tree = mapped.tree
    kept = tree["kept"]
    assert mapped.holds(kept)
    assert not mapped.holds(torch.ones(3))
    assert torch.get_rng_state().equal(tree["random"])
    torch.set_rng_state(tree["random"])
    assert (tree["one"].item(), tree["none"].shape) == (3, (0,))
    kept[0] = 5.0  # what is written to it stays in this process
    del tree
    mapped.release()
    for step in range(2, 6):
        snapshot.write(
            StateVersion(1, step), {"kept": torch.full((5000,), float(step)), "left": torch.ones(7)}
        )
    assert kept[0] == 5.0
    assert kept[1:].unique().tolist() == [1.0]
    before = count_descriptors([identity(snapshot.fd)])
    for _ in range(3):
        MappedState(snapshot.fd).release()
    assert count_descriptors([identity(snapshot.fd)]) <= before
    snapshot.close()
