"""A State without an agent: when it goes, and who of a pod keeps what it holds."""

import contextlib
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import elastic_pytorch as elastic
import pytest
import torch
import torch.distributed as dist
from elastic_pytorch.memory.pod_memory import writes_for_its_pod
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import load_newest

from tests.worker_image.torch_group import run_group
from tests.worker_image.warm_python import run_python

pytestmark = pytest.mark.torch


def step_on_disk(folder: Path) -> int | None:
    loaded = load_newest(folder, StateVersion(0, 0))
    return loaded.version.step if loaded else None


def train(folder: Path) -> "tuple[weakref.ref[object], weakref.ref[object]]":
    model = torch.nn.Linear(2, 2)
    state = elastic.State(folder, model=model)
    state.restore()
    state.commit()
    assert state.flush()
    state.close()
    return weakref.ref(state), weakref.ref(model)


def open_files(folder: Path) -> list[str]:
    """What this process has open in memory and in `folder`, not other threads' sockets."""
    for thread in threading.enumerate():
        if thread.name == "snapshot memory":  # it has one of its own while it lasts
            thread.join(60)
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            links.append(str(descriptor.readlink()))
    return [link for link in links if link.startswith(("/memfd:", str(folder)))]


def test_nothing_of_it_stays_behind(tmp_path: Path) -> None:
    train(tmp_path)
    gc.collect()
    before = len(open_files(tmp_path))
    for _ in range(3):
        state, model = train(tmp_path)
        gc.collect()
        assert (state(), model()) == (None, None)
    assert len(open_files(tmp_path)) <= before  # fewer, if what an earlier test has left goes now


def test_a_training_that_goes_on_from_a_closed_one_is_brought_to_the_disk_too(
    tmp_path: Path,
) -> None:
    for steps in (3, 6):
        state = elastic.State(
            tmp_path, elastic.State.Options(every=1, flush_seconds=1e9), model=torch.nn.Linear(2, 2)
        )
        assert state.restore() == steps - 3
        for _ in range(3):
            state.commit()
        state.close()
        assert step_on_disk(tmp_path) == steps


def committed_steps(state: elastic.State, steps: int) -> list[int]:
    """The steps that are committed by a training that takes no time at all."""
    found = []
    for _ in range(steps):
        state.commit()
        if state._version.step == state.step:
            found.append(state.step)
    return found


def test_a_state_that_costs_more_than_the_steps_is_committed_now_and_then(tmp_path: Path) -> None:
    state = elastic.State(tmp_path, elastic.State.Options(total_steps=600), blob=torch.zeros(10**6))
    state.restore()
    committed = committed_steps(state, 600)
    assert len(committed) < 300
    assert committed[-1] == 600, "the last step always is"


def test_last_step_of_the_last_epoch_is_committed(tmp_path: Path) -> None:
    sampler = elastic.ElasticSampler(21, 3)
    state = elastic.State(tmp_path, elastic.State.Options(every=5), sampler=sampler)
    state.restore()
    committed = [step for _ in sampler.epochs(2) for step in committed_steps(state, 7)]
    assert (committed, state._version.step) == ([5, 10], 14), "once the loop is over"


def test_flush_commits_the_last_step(tmp_path: Path) -> None:
    state = elastic.State(tmp_path, elastic.State.Options(every=100), model=torch.nn.Linear(2, 2))
    state.restore()
    assert committed_steps(state, 7) == []
    assert state.flush()
    assert step_on_disk(tmp_path) == 7


LEFT_EARLY = """if True:
    import collections, elastic_pytorch as elastic, torch

    class Seen(collections.Counter):
        state_dict, load_state_dict = dict, collections.Counter.update

    def main():
        options = elastic.State.Options(every=5)
        state = elastic.State({folder!r}, options, model=torch.nn.Linear(2, 2), {more})
        state.restore()
        for _ in range(7):
            state.commit()

    main()
    {ending}
"""


@pytest.mark.parametrize(
    ("more", "ending", "kept"),
    [("", "", 7), ("own=elastic.PerRank(Seen())", "", 7), ("", "raise ValueError", 5)],
)
def test_steps_since_the_last_commit_are_committed_where_a_process_ends_well(
    tmp_path: Path, more: str, ending: str, kept: int
) -> None:
    result = run_python(LEFT_EARLY.format(folder=str(tmp_path), more=more, ending=ending))
    assert result.returncode == (1 if ending else 0), result.stderr
    assert step_on_disk(tmp_path) == kept


SPOILT = """
    import os, pathlib, threading
    from elastic_pytorch.state import last_commits
    folder = pathlib.Path({folder!r})
    while not folder.exists():
        pass
    folder.rename(str(folder) + "-before")
    folder.touch()
    {then}
"""


def test_a_process_whose_last_commit_cannot_be_written_ends_with_an_error(tmp_path: Path) -> None:
    folder = str(tmp_path / "checkpoints")
    spoilt = SPOILT.format(folder=folder, then="last_commits.LAST_FLUSH_SECONDS = 10")
    result = run_python(LEFT_EARLY.format(folder=folder, more="", ending=spoilt))
    assert result.returncode == 1
    assert (
        "LastCheckpointNotWritten: the last commit is not on the disk: Not a directory"
        in result.stderr
    )


def test_a_last_commit_that_cannot_be_written_at_first_is_written_later(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    spoilt = SPOILT.format(
        folder=str(folder), then="threading.Timer(1.0, os.unlink, (folder,)).start()"
    )
    result = run_python(LEFT_EARLY.format(folder=str(folder), more="", ending=spoilt))
    assert result.returncode == 0, result.stderr
    assert step_on_disk(folder) == 7


def test_a_forked_process_leaves_the_last_commit_to_the_worker(tmp_path: Path) -> None:
    """As its exit handlers run, it would wait for what it cannot write."""
    forks = """
    import os, sys
    if (child := os.fork()) == 0:
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    result = run_python(LEFT_EARLY.format(folder=str(tmp_path), more="", ending=forks))
    assert result.returncode == 0, result.stderr
    assert step_on_disk(tmp_path) == 7


@pytest.mark.parametrize(
    ("variables", "writes"),
    [
        ({}, True),
        ({"RANK": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, True),
        ({"RANK": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, False),
        ({"RANK": "5", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, False),  # --virtual-local-rank
    ],
)
def test_one_process_of_a_pod_keeps_the_state(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], writes: bool
) -> None:
    for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert writes_for_its_pod() is writes


class Watchful(torch.optim.AdamW):
    """Tells what it held when a state was loaded; may lack the memory for that."""

    held = -1
    memory = True

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.held = len(self.state)
        if not self.memory:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB.")
        super().load_state_dict(state_dict)


def test_optimizer_gives_its_memory_back_before_it_takes_that_of_the_state(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = Watchful(model.parameters())
    state = elastic.State(tmp_path, model=model, optimizer=optimizer)
    state.restore()
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    state.commit()
    kept = [
        {name: value.clone() for name, value in each.items()} for each in optimizer.state.values()
    ]
    optimizer.zero_grad()
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    state.restore()
    assert optimizer.held == 0
    restored = list(optimizer.state.values())
    assert [len(each) for each in restored] == [3, 3]
    assert all(
        torch.equal(value, each[name])
        for each, before in zip(restored, kept, strict=True)
        for name, value in before.items()
    )
    optimizer.memory = False
    with pytest.raises(torch.cuda.OutOfMemoryError):
        state.restore()


def fine_tune(folder: Path, steps: int) -> tuple[bool, float]:
    """Whether a group reads the pretrained weights, and what a weight is at its end."""
    model = torch.nn.Linear(1, 1)
    state = elastic.State(folder, elastic.State.Options(every=1), model=model)
    if first := state.restore() == 0:
        torch.nn.init.constant_(model.weight, 100.0)
    for _ in range(steps):
        with torch.no_grad():
            model.weight += 1
        state.commit()
    state.flush()
    state.close()
    return first, model.weight.item()


def test_pretrained_weights_are_read_until_a_step_is_kept_and_not_after(tmp_path: Path) -> None:
    assert fine_tune(tmp_path, 0) == (True, 100.0)  # a group that ends before its first step
    assert fine_tune(tmp_path, 2) == (True, 102.0)
    assert fine_tune(tmp_path, 1) == (False, 103.0)


def test_two_states_of_one_loop_are_refused_at_its_second_step(tmp_path: Path) -> None:
    critic, generator = (
        elastic.State(tmp_path, elastic.State.Options(name=name), model=torch.nn.Linear(2, 2))
        for name in ("critic", "generator")
    )
    for each in (critic, generator):
        each.restore()
        each.commit()
    with pytest.raises(RuntimeError, match=r"generator=g, critic=c.*commit it once a step"):
        critic.commit()
    assert (critic.step, generator.step) == (1, 1)
    generator.close()
    critic.commit()
    critic.close()


def test_list_and_dict_are_kept_under_the_names_that_the_script_has_for_them(
    tmp_path: Path,
) -> None:
    for begun in range(3):
        history, best = list[int](), {"loss": 9.0}
        state = elastic.State(
            tmp_path,
            elastic.State.Options(every=1),
            model=torch.nn.Linear(2, 2),
            history=history,
            best=best,
        )
        state.restore()
        assert (history, best) == (list(range(begun)), {"loss": 9.0 - begun})
        history.append(begun)
        best["loss"] -= 1
        state.commit()
        state.close()


def test_compiled_model_restores_into_a_plain_one_and_back(tmp_path: Path) -> None:
    def compiled(model: torch.nn.Module) -> Any:
        return torch.compile(model, backend="eager")

    saved = list[torch.Tensor]()
    for wrap in (compiled, lambda model: model, compiled):
        model = torch.nn.Linear(2, 2)
        state = elastic.State(tmp_path, elastic.State.Options(every=1), model=wrap(model))
        state.restore()
        assert not saved or torch.equal(model.weight, saved[-1])
        saved.append(torch.nn.init.normal_(model.weight).detach().clone())
        state.commit()
        state.close()


@pytest.mark.parametrize(
    "folder", ["", "~", "~/run", "~me/run", "$HOME/run", "/data/${RUN}", "s3://bucket/$RUN"]
)
def test_folder_that_only_a_shell_knows_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"expanduser|None to keep no checkpoints"):
        elastic.State(folder, model=torch.nn.Linear(2, 2))
    assert not list(tmp_path.iterdir())


def test_folder_on_no_volume_of_a_pod_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # A mount, as the folder of the token is one in a pod.
    monkeypatch.setenv("ELASTIC_PYTORCH_TOKEN_FILE", "/proc/version")
    with pytest.raises(ValueError, match="/of-no-volume/run is on the container's own disk"):
        elastic.State("/of-no-volume/run", model=torch.nn.Linear(2, 2))
    assert not Path("/of-no-volume").exists()


class OfItsRank:
    def __init__(self) -> None:
        self.rank = dist.get_rank()

    def state_dict(self) -> dict[str, int]:
        return {"rank": self.rank}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.rank = state["rank"]


def flush_together(folder: Path, blocked: bool) -> tuple[bool, bool]:
    state = elastic.State(
        folder,
        elastic.State.Options(every=100),
        model=torch.nn.Linear(2, 2),
        best=9.0,
        own=elastic.PerRank(OfItsRank()),
    )
    state.restore()
    for _ in range(3):
        state.commit()
    assert state.flush()  # or a save might make the folder again
    state.commit()
    state.best = 1.0 if dist.get_rank() == 0 else 2.0
    if blocked and dist.get_rank() == 0:
        folder.rename(folder.with_name("before"))
        folder.touch()
    done = state.flush()
    if blocked and dist.get_rank() == 0:
        folder.unlink()  # or the process would not end well
    return done, state.best == 1.0


@pytest.mark.process
@pytest.mark.parametrize("blocked", [False, True])
def test_flush_tells_all_ranks_the_same(tmp_path: Path, blocked: bool) -> None:
    folder = tmp_path / "run"
    assert run_group(2, flush_together, folder, blocked) == [(not blocked, True)] * 2
    assert blocked or elastic.load(folder)["own"]["states"] == [{"rank": 0}, {"rank": 1}]
