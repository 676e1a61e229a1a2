"""What a process is given when it goes on in another group: as much as one that starts."""

from types import SimpleNamespace

from elastic_pytorch.agent.group_environment import group_environment
from elastic_pytorch.pod.preparation import GROUP_VARIABLES


def test_all_that_depends_on_the_group_is_given() -> None:
    worker = SimpleNamespace(global_rank=7, role_rank=7, world_size=12, role_world_size=12)
    given = group_environment(worker, store=("10.0.0.1", 29500), local_world_size=2, unit_replicas=3)
    assert given == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "RANK": "7",
        "ROLE_RANK": "7",
        "GROUP_RANK": "3",
        "WORLD_SIZE": "12",
        "ROLE_WORLD_SIZE": "12",
        "GROUP_WORLD_SIZE": "6",
        "ELASTIC_PYTORCH_UNIT": "1",
        "ELASTIC_PYTORCH_UNITS": "2",
        "ELASTIC_PYTORCH_UNIT_RANK": "1",
    }
    assert given.keys() == GROUP_VARIABLES, "what a preparing process waits for"
