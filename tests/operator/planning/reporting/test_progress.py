from typing import Any

from elastic_pytorch_operator.planning.reporting.progress import describe_progress

from tests.operator.builders import Progress, an_agent
from tests.situations import situations

OLD = {"summary": "7/9", "step": 7, "total": 9, "stepsPerSecond": "1", "metrics": {"f1": "0.5"}}


@situations(
    "agents, progress",
    {
        "no report": ([an_agent("w0")], {}),
        "a step": ([an_agent("w0", progress=Progress(step=7))], {"summary": "7", "step": 7}),
        "the newest step, the newest checkpoint, the highest speed": (
            [
                an_agent("w0", progress=Progress(step=7, total=80, loss=1.23456, checkpoint_step=5), steps_per_second=1.57),
                an_agent("w1", progress=Progress(step=6, checkpoint_step=6), steps_per_second=1.4),
            ],
            {"summary": "7/80", "step": 7, "total": 80, "loss": "1.235", "stepsPerSecond": "1.57", "checkpointStep": 6},
        ),
    },
)
def test_progress(agents: list[Any], progress: dict[str, Any]) -> None:
    assert describe_progress(agents, {}) == progress


def test_without_a_report_the_old_progress_stays() -> None:
    assert describe_progress([], OLD) == OLD


def metrics(*reports: tuple[int, dict[str, float]], old: dict[str, str] | None = None) -> dict[str, str]:
    agents = [an_agent(f"w{n}", progress=Progress(step=step, metrics=tuple(m.items()))) for n, (step, m) in enumerate(reports)]
    found: dict[str, str] = describe_progress(agents, {"metrics": old or {}}).get("metrics", {})
    return found


def test_newest_metric_of_each_name_is_told_by_name() -> None:
    assert list(metrics((5, {"b": 1.0, "a": 0.123456789})).items()) == [("a", "0.123457"), ("b", "1")]
    assert metrics((5, {"a": 1.0}), (6, {"a": 2.0})) == {"a": "2"}, "the rank that is ahead"
    assert metrics((5, {"a": 1.0}), (5, {"a": 2.0, "b": 3.0})) == {"a": "1", "b": "3"}, "the first of equals"
    assert metrics((5, {"a": 1e300}), (6, {})) == {"a": "1e+300"}
    assert metrics((5, {})) == {}


def test_metric_that_is_not_reported_again_after_a_change_of_the_group_stays() -> None:
    assert metrics((5, {"a": 1.0}), old={"a": "9", "b": "8"}) == {"a": "1", "b": "8"}
    reported, before = {f"m{n:02d}": 1.0 for n in range(15)}, {"x": "2", "y": "2"}
    assert metrics((5, reported), old=before) == {**dict.fromkeys(reported, "1"), "x": "2"}, "sixteen at most"
