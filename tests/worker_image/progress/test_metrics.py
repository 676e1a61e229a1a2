import json
import math
from collections.abc import Iterator
from typing import Any

import elastic_pytorch_operator.agents.heartbeat
import elastic_pytorch_operator.model.observed
import pytest
import torch
from elastic_pytorch import report
from elastic_pytorch.progress.metrics import MAX_METRICS, MAX_NAME_CHARACTERS, NAME
from elastic_pytorch.progress.receiver import Progress, ProgressReceiver, parse_report
from elastic_pytorch.progress.report import REPORT_SOCKET

from tests.waiting import until

pytestmark = pytest.mark.torch


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressReceiver]:
    made = ProgressReceiver()
    monkeypatch.setenv(REPORT_SOCKET, made.path)
    made.start_round()
    yield made
    made.close()


def test_newest_value_of_each_name_counts(receiver: ProgressReceiver) -> None:
    report(step=1, metrics={"accuracy": 0.5, "val/f1": torch.tensor(0.25)})
    report(metrics={"accuracy": 1})
    report(step=2)
    until(lambda: receiver.current().step == 2)
    told = receiver.current().to_json()
    assert told["metrics"] == {"val/f1": 0.25, "accuracy": 1.0}


def test_value_that_is_not_finite_is_left_out(receiver: ProgressReceiver) -> None:
    report(step=1, metrics={"accuracy": math.nan, "loss/val": -math.inf, "f1": 0.5})
    until(lambda: receiver.current().step == 1)
    assert receiver.current().metrics == (("f1", 0.5),)


def test_new_round_forgets_them(receiver: ProgressReceiver) -> None:
    report(metrics={"accuracy": 0.5})
    until(lambda: receiver.current().metrics != ())
    receiver.start_round()
    assert receiver.current() == Progress()
    report(step=1)
    until(lambda: receiver.current().step == 1)
    told = receiver.current().to_json()
    assert told is not None
    assert "metrics" not in told


def test_most_and_longest_names_arrive_and_those_reported_last_are_kept(
    receiver: ProgressReceiver,
) -> None:
    names = [f"{number:02d}".ljust(MAX_NAME_CHARACTERS, "x") for number in range(MAX_METRICS + 1)]
    report(metrics=dict.fromkeys(names[:-1], -math.pi * 1e-300))
    until(lambda: len(receiver.current().metrics) == MAX_METRICS)
    report(step=1, metrics={names[0]: 2, names[-1]: 3})
    until(lambda: receiver.current().step == 1)
    assert [name for name, _ in receiver.current().metrics] == [*names[2:-1], names[0], names[-1]]


def test_operator_takes_the_same_names() -> None:
    assert elastic_pytorch_operator.agents.heartbeat.METRIC_NAME == NAME
    assert elastic_pytorch_operator.model.observed.MAX_METRICS == MAX_METRICS


REFUSED = [
    ({"accuracy": 10**400}, "accuracy.*number"),
    ({"accuracy": None}, "accuracy.*number"),
    ({"accuracy": "high"}, "accuracy.*number"),
    ({"accuracy": torch.zeros(2)}, "accuracy.*number"),
    ({"": 1}, "name.*''"),
    ({"two words": 1}, "name.*'two words'"),
    ({"Genauigkeit\u00e4": 1}, "name"),
    ({"accuracy\n": 1}, "name"),
    ({"x" * 64: 1}, "name.*x"),
    ({7: 1}, "name.*7"),
    ({f"m{number}": 1 for number in range(17)}, "17.*at most 16"),
    ([("accuracy", 1)], "mapping"),
    (0.93, "mapping"),
]


@pytest.mark.parametrize(("metrics", "said"), REFUSED)
@pytest.mark.parametrize("path", ["", "/nowhere/at/all"])
def test_what_cannot_be_reported_is_refused_with_or_without_an_agent(
    metrics: Any, said: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPORT_SOCKET, path)
    with pytest.raises(ValueError, match=f"(?s)^metrics.*{said}"):
        report(step=1, metrics=metrics)


@pytest.mark.parametrize(
    "metrics", [7, [1], {"a b": 1}, {"a": "x"}, {f"m{n}": 1 for n in range(17)}]
)
def test_datagram_with_other_metrics_is_no_report(metrics: Any) -> None:
    with pytest.raises(ValueError, match="metrics"):
        Progress().with_fields(
            parse_report(json.dumps({"step": 1, "metrics": metrics}).encode()), 0.0
        )
