from elastic_pytorch.progress.work_windows import (
    MAX_REPORTS,
    WINDOW_REPORTS,
    WINDOW_SECONDS,
    Work,
    WorkWindows,
)

from tests.situations import situations


def windows_of(*reports: tuple[float, int, float]) -> list[Work]:
    """The windows that reports of (moment, local rank, seconds of work) end; a step takes 1 s."""
    windows = WorkWindows()
    ended = (windows.add(local_rank, work, 1.0, at) for at, local_rank, work in reports)
    return [work for work in ended if work is not None]


def each_second(
    count: int, work: float = 0.5, local_rank: int = 0
) -> list[tuple[float, int, float]]:
    return [(float(second), local_rank, work) for second in range(count)]


ONE = Work(1, (0.5,), 1.0)


@situations(
    "reports,windows",
    {
        "nothing is reported": ([], []),
        "not long enough": (each_second(5), []),
        "five seconds, and enough reports": (each_second(6), [ONE]),
        "too few reports of long steps": ([(60.0 * n, 0, 0.5) for n in range(3)], []),
        "enough of them": ([(60.0 * n, 0, 0.5) for n in range(WINDOW_REPORTS)], [ONE]),
        "one after the other": (each_second(12), [ONE, Work(2, (0.5,), 1.0)]),
        "one long step is no matter": ([*each_second(5), (5.0, 0, 99.0)], [ONE]),
        "a rank that reports nothing": (
            sorted([*each_second(6), *each_second(6, 0.25, local_rank=2)]),
            [Work(1, (0.5, None, 0.25), 1.0)],
        ),
        "one that has just begun": (
            [*each_second(5), (4.0, 1, 0.25), (5.0, 0, 0.5)],
            [Work(1, (0.5, None), 1.0)],
        ),
    },
)
def test_windows(reports: list[tuple[float, int, float]], windows: list[Work]) -> None:
    assert windows_of(*reports) == windows


def test_memory_of_a_window_is_bounded() -> None:
    windows = WorkWindows()
    for _ in range(2 * MAX_REPORTS):
        assert windows.add(0, 0.5, 1.0, 0.0) is None
    assert len(windows._work[0]) == MAX_REPORTS
    assert windows.add(0, 99.0, 1.0, WINDOW_SECONDS) == Work(1, (0.5,), 1.0)


def test_as_a_heartbeat_carries_it() -> None:
    told = Work(3, (0.1234567, None), 0.25).to_json()
    assert told == {"workWindows": 3, "workSeconds": [0.123457, None], "stepSeconds": 0.25}
