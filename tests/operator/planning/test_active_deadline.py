"""Since when a job is active, and until when it may be."""

import pytest
from elastic_pytorch_operator.planning.completion import active_since, deadline_at
from elastic_pytorch_operator.planning.target import Target

from tests.operator.builders import NOW, a_job, observed


@pytest.mark.parametrize(
    ("status", "suspended", "known", "since"),
    [
        pytest.param({}, False, None, NOW, id="new"),
        pytest.param({}, False, NOW - 7, NOW - 7, id="known"),
        pytest.param({"startTime": "2025-12-31T23:59:00Z"}, False, None, NOW - 60, id="started before this operator"),
        pytest.param({"startTime": "2025-12-31T23:59:00Z"}, False, NOW - 7, NOW - 7, id="the clock of this operator counts"),
        pytest.param({"startTime": "2025-12-31T23:59:00Z"}, True, NOW - 7, None, id="suspended"),
        pytest.param({"startTime": "no time"}, False, None, NOW, id="no time"),
    ],
)
def test_active_since(status: dict[str, str], suspended: bool, known: float | None, since: float | None) -> None:
    assert active_since(a_job(status=status), Target(0 if suspended else 3), observed(), known) == since


@pytest.mark.parametrize(
    ("seconds", "since", "until"), [(60, NOW, NOW + 60), (60, None, None), (None, NOW, None)], ids=["set", "suspended", "unset"]
)
def test_deadline(seconds: int | None, since: float | None, until: float | None) -> None:
    fields = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    assert deadline_at(a_job(**fields), since) == until
