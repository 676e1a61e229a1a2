from elastic_pytorch_operator.local.run import describe_progress

from tests.operator.simulation import running


def test_log_says_how_many_workers_are_ready() -> None:
    assert describe_progress({}) == "Pending: round 0, 0 workers ready"
    assert describe_progress(running().job.status) == "Running: round 1, 3 workers ready"
