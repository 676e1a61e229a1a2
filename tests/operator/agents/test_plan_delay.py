"""How soon a job is planned after a report."""

import pytest
from elastic_pytorch_operator.agents.plan_delay import delay_of_change


@pytest.mark.parametrize(("agents", "least", "most"), [(1, 0.0, 0.001), (10, 0.0, 0.001), (2000, 0.02, 0.1), (4000, 0.05, 0.2)])
def test_change_waits_longer_in_a_larger_job(agents: int, least: float, most: float) -> None:
    assert least <= delay_of_change(agents) <= most
