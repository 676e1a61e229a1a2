from elastic_pytorch_operator.planning.completion import active_since, deadline_at
from elastic_pytorch_operator.planning.target import Target

from tests.operator.builders import NOW, a_job
from tests.situations import situations


def test_active_since_it_began_or_was_resumed() -> None:
    assert active_since(Target(3), NOW, None) == NOW
    assert active_since(Target(3), NOW, NOW - 7) == NOW - 7
    assert active_since(Target(0), NOW, NOW - 7) is None


@situations("seconds, since, until", {"set": (60, NOW, NOW + 60), "suspended": (60, None, None), "unset": (None, NOW, None)})
def test_deadline(seconds: int | None, since: float | None, until: float | None) -> None:
    fields = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    assert deadline_at(a_job(**fields), since) == until
