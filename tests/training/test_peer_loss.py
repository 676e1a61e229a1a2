import pytest
from elastic_pytorch.peer_loss import is_peer_loss

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.244.1.5]:41234"


class DistBackendError(RuntimeError):
    """As torch's."""


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError(GLOO), True),
        (
            RuntimeError("NCCL error: remote process exited or there was a network error, ncclRemoteError: connection reset"),
            True,
        ),
        (DistBackendError("whatever it says"), True),
        (RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"), False),
        (ValueError(GLOO), False),
        (KeyError("loss"), False),
    ],
)
def test_errors(error: Exception, lost: bool) -> None:
    assert is_peer_loss(error) is lost


def test_an_error_that_wraps_one() -> None:
    wrapped = ValueError("the step failed")
    wrapped.__cause__ = RuntimeError(GLOO)
    assert is_peer_loss(wrapped)
