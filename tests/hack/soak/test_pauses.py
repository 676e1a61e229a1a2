"""Pauses of two runs of the same faults, and when they count as much longer."""

import json

import pytest
from soak import plan
from soak.__main__ import parse_options
from soak.checks.training import Expected
from soak.pauses import Compared, compare, pauses_by_job, same_run
from soak.timeline import Hit, Step
from soak.verdict import Seen

FAULTS = 20


def a_run(*pauses: float) -> Seen:
    """A job that stands still once for each fault, all else being steps of a second."""
    at, hits, steps = 0.0, list[Hit](), list[Step]()
    for number, pause in enumerate(pauses):
        steps += [Step(at + n, "w", 0, 1, 100 * number + n, 1) for n in range(5)]
        hits.append(Hit(at + 3.5, at + 3.5, "scale", "", frozenset({"job"})))
        at += 4 + pause
    steps += [Step(at + n, "w", 0, 1, 9000 + n, 1) for n in range(3)]
    return Seen({"job": Expected("job", 1, 2, 1, 6)}, hits, {"job": steps, "other": steps}, {}, {}, {}, [], [], {})


def test_each_fault_has_one_pause_of_each_job_that_it_was_made_to() -> None:
    assert pauses_by_job(a_run(*range(2, 2 + FAULTS)))["job"] == pytest.approx((11.5, 20, 21))
    assert set(pauses_by_job(a_run(3, 4))) == {"job"}, "no fault was made to the other"


@pytest.mark.parametrize(
    ("now", "earlier", "too_long"),
    [(1.0, 1.0, False), (2.0, 1.0, False), (2.01, 1.0, True), (0.1, 4.0, False), (0.1, 0.0, True), (0.0, 0.0, False)],
)
def test_more_than_twice_is_too_long(now: float, earlier: float, too_long: bool) -> None:
    assert Compared("job", "median", now, earlier).too_long is too_long


def test_each_figure_of_each_job_is_compared() -> None:
    rows = compare({"a": (1, 2, 9), "b": (1, 1, 1), "new": (1, 1, 1)}, {"a": (1, 2, 3), "b": (1, 1, 1), "gone": (1, 1, 1)})
    assert [(row.job, row.figure) for row in rows if row.too_long] == [("a", "longest")]
    assert len(rows) == 6
    assert rows[2].text == "a, longest of the pauses: 9.00 s, 3.00 times the 3.00 s of before: more than 2 times"
    assert "not comparable" in Compared("a", "median", 1.0, 0.0).text


def test_only_runs_of_the_same_jobs_and_faults_are_compared(tmp_path_factory: pytest.TempPathFactory) -> None:
    faults = plan.made_to(["plain"], plan.SETTLED)
    acts = plan.draw(7, 120, faults)
    earlier = json.loads(json.dumps({"jobs": ["plain"], "acts": plan.to_json(acts), "pauses": {}}))
    assert same_run(earlier, ["plain"], acts)
    assert not same_run(earlier, ["plain", "library"], acts)
    assert not same_run(earlier, ["plain"], plan.draw(8, 120, faults))
    assert not same_run({**earlier, "pauses": {}} | {"acts": []}, ["plain"], acts)
    assert not same_run({name: earlier[name] for name in ("jobs", "acts")}, ["plain"], acts), "a report without pauses"
    file = tmp_path_factory.mktemp("soak") / "earlier.json"
    file.write_text(json.dumps(earlier))
    same = ["--seed", "7", "--minutes", "2", "--faults", "settled", "--compare", str(file), "--hostile"]
    assert parse_options([*same, "--jobs", "plain"]).earlier["jobs"] == ["plain"]
    with pytest.raises(SystemExit):
        parse_options([*same, "--jobs", "library"])


def test_a_hostile_tenant_changes_nothing_of_the_plan() -> None:
    options = ["--seed", "11", "--minutes", "5", "--faults", "settled"]
    assert parse_options([*options, "--hostile"]).acts == parse_options(options).acts
