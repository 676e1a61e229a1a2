from itertools import pairwise

from elastic_pytorch_operator.monitoring.gauge_values import GaugeValues
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.planning.memory import Memory, Plan
from elastic_pytorch_operator.planning.reporting.goodput import Account, Activity, Spent


def account(training: float, recovering: float) -> Account:
    spent = {
        Activity.TRAINING: Spent(training, 2 * training),
        Activity.RECOVERING: Spent(recovering, 2 * recovering),
    }
    return Account(0.0, Activity.TRAINING, 0.0, spent)


def test_time_that_is_booked_over_is_made_up_for() -> None:
    metrics, seen = Metrics(), []
    accounts = [
        None,
        account(10, 0),
        account(30, 0),
        account(25, 7),
        account(28, 7),
        account(40, 7),
    ]
    for before, after in pairwise(accounts):
        metrics.decided("team", Memory(account=before), Plan(Memory(account=after)))
        seen.append([value(metrics, activity) for activity in ("Training", "Recovering")])
    assert seen == [[0, 0], [20, 0], [20, 7], [20, 7], [30, 7]]
    assert value(metrics, "Training", of="process_seconds") == 60


def value(metrics: Metrics, activity: str, of: str = "seconds") -> float:
    text = metrics.render(GaugeValues()).decode()
    name = f'elastic_pytorch_spent_{of}_total{{activity="{activity}",namespace="team"}} '
    return next(
        float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name)
    )
