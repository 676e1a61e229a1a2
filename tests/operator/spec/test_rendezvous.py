"""`spec.rendezvous`, and what a job may not set if stock torchrun forms its group."""

from typing import Any

import pytest
from elastic_pytorch_operator.spec.fields import InvalidJob
from elastic_pytorch_operator.spec.rendezvous import OWN, Rendezvous, read_rendezvous

STOCK = {"rendezvous": {"backend": "c10d"}}
RESTART = {"failurePolicy": {"rules": [{"action": "Ignore"}, {"action": "RestartGroup"}]}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (None, Rendezvous("operator", "", 29500)),
        ({"port": 29600}, Rendezvous("operator", "", 29600)),
        ({"backend": "c10d"}, Rendezvous("c10d", "", 29500)),
        ({"backend": "etcd-v2", "endpoint": "etcd:2379"}, Rendezvous("etcd-v2", "etcd:2379", 29500)),
    ],
)
def test_what_is_read(fields: dict[str, Any] | None, expected: Rendezvous) -> None:
    assert read_rendezvous({"rendezvous": fields}) == expected


def nested(path: str, value: object) -> dict[str, Any]:
    parent, _, name = path.rpartition(".")
    return {parent: {name: value}} if parent else {name: value}


@pytest.mark.parametrize("path", OWN)
def test_what_only_the_operators_own_rendezvous_offers(path: str) -> None:
    with pytest.raises(InvalidJob) as refused:
        read_rendezvous(nested(path, {}) | STOCK)
    assert str(refused.value) == f"spec.rendezvous.backend: must be operator if {path} is set: stock torchrun does not offer it"
    read_rendezvous(nested(path, {}))
    read_rendezvous(nested(path, None) | STOCK)


@pytest.mark.parametrize(
    ("path", "value"), [("resizePolicy.minSecondsBetweenGrowths", 0), ("resizePolicy.allowedReplicas", [])]
)
def test_what_says_as_much_as_nothing_may_be_set(path: str, value: object) -> None:
    read_rendezvous(nested(path, value) | STOCK)


def test_stock_torchrun_cannot_restart_a_group_by_rule() -> None:
    with pytest.raises(InvalidJob, match=r"must be operator if .* RestartGroup is set"):
        read_rendezvous(RESTART | STOCK)
    read_rendezvous(RESTART)
    read_rendezvous({"failurePolicy": {"rules": [{"action": "Ignore"}]}} | STOCK)
