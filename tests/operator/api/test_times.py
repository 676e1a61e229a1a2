import pytest
from elastic_pytorch_operator.api.times import earlier, seconds_between


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T01:00:01Z", 3601.0),
        ("2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00Z", 3600.0),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z", 0.0),
        ("yesterday", "2026-01-01T00:00:00Z", 0.0),
        ("2026-01-01T00:00:00", "2026-01-01T00:00:00Z", 0.0),
    ],
)
def test_seconds_between(earlier: str, later: str, seconds: float) -> None:
    assert seconds_between(earlier, later) == seconds


@pytest.mark.parametrize(
    ("time", "seconds", "before"),
    [
        ("2026-01-01T00:00:00Z", 0.0, "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00Z", 61.0, "2025-12-31T23:58:59Z"),
        ("2026-01-01T00:00:00Z", 0.3, "2025-12-31T23:59:59Z"),
        ("2026-01-01T01:00:00+01:00", 1.0, "2025-12-31T23:59:59Z"),
        ("2026-01-01T00:00:00Z", 1e15, "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00Z", 1e11, "2026-01-01T00:00:00Z"),
        ("yesterday", 1.0, "yesterday"),
    ],
)
def test_earlier(time: str, seconds: float, before: str) -> None:
    assert earlier(time, seconds) == before
