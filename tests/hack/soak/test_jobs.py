"""The jobs are valid, and train as long as faults are made."""

import pytest
from measure.recorded_job import scripts
from soak.jobs import SCRIPTS, SORTS, USUAL, epochs_of, expected, manifest, undisturbed

from tests.job_schema import VALIDATOR


@pytest.mark.parametrize("sort", [*SORTS.values(), *undisturbed(list(SORTS.values())).values()], ids=lambda sort: sort.name)
def test_jobs_are_valid(sort: object) -> None:
    VALIDATOR.validate(manifest(sort, 180, "folder"))  # type: ignore[arg-type]


def test_each_job_of_the_library_has_an_undisturbed_one_and_equal_ones_share_it() -> None:
    found = undisturbed(list(SORTS.values()))
    assert set(found) == {
        "library",
        "micro-batches",
        "two-processes",
        "suspended",
        "prepared",
        "spare",
        "newcomers-fail",
        "units",
        "sharded",
        "bucket",
    }
    assert found["library"] is found["bucket"]
    assert found["library"] is found["two-processes"]
    assert found["library"] is found["spare"]
    assert found["library"] is not found["micro-batches"]
    for name, alone in found.items():
        assert epochs_of(alone, 600) == epochs_of(SORTS[name], 600)


def test_job_with_a_spare_has_a_fixed_size() -> None:
    spec = manifest(SORTS["spare"], 180, "folder")["spec"]
    assert (spec["replicas"], spec["spares"]) == (2, 1)
    assert not {"minReplicas", "maxReplicas"} & set(spec)
    assert (expected(SORTS["spare"], 180).minimum, expected(SORTS["spare"], 180).maximum) == (2, 2)


def test_job_of_units_has_whole_ones_at_least() -> None:
    spec = manifest(SORTS["units"], 180, "folder")["spec"]
    assert (spec["unitReplicas"], spec["minReplicas"], spec["maxReplicas"]) == (2, 2, 6)
    assert expected(SORTS["units"], 180).unit == 2


def test_workers_with_a_set_up_prepare() -> None:
    preparing = {name for name, sort in SORTS.items() if "prepare" in manifest(sort, 180, "folder")["spec"]}
    assert preparing == {"prepared", "spare", "newcomers-fail"}


def test_only_the_job_with_a_bucket_has_no_folder() -> None:
    job = manifest(SORTS["bucket"], 180, "folder")["spec"]["template"]["spec"]["containers"][0]
    assert job["args"][job["args"].index("--folder") + 1] == "s3://bucket/bucket"
    assert "AWS_ENDPOINT_URL" in {each["name"] for each in job["env"]}
    assert (expected(SORTS["bucket"], 180).bucket, expected(SORTS["library"], 180).bucket) == (True, False)
    assert set(USUAL) == set(SORTS) - {"bucket"}


def test_scripts_are_those_that_the_jobs_start() -> None:
    assert set(scripts(SCRIPTS)["data"]) == {
        "plain.py",
        "object_server.py",
        "stateful.py",
        "sharded_weights.py",
        "own_orders.py",
        "events.py",
    }


@pytest.mark.parametrize(("seconds", "steps"), [(10, 42), (180, 714), (3600, 14406)])
def test_steps_grow_with_the_time(seconds: float, steps: int) -> None:
    assert expected(SORTS["plain"], seconds).total == steps
