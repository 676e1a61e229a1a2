from typing import Any

from elastic_pytorch_operator.model.status_changes import says_more

from tests.operator.builders import TIME
from tests.situations import situations

WRITTEN = {"round": 1, "progress": {"step": 1}}
CHANGE = {"time": TIME, "round": 1, "replicas": 2, "cause": "FirstRound"}
SAMPLE = {"time": TIME, "loss": "2.5"}


@situations(
    "new, more",
    {
        "nothing new": (WRITTEN, False),
        "progress": ({**WRITTEN, "progress": {"step": 2}}, False),
        "slow ranks": ({**WRITTEN, "stragglers": [{"rank": 1}]}, False),
        "a sample of loss and speed": ({**WRITTEN, "history": [SAMPLE]}, False),
        "what the time was spent on": ({**WRITTEN, "goodput": {"time": TIME}}, False),
        "a change of the group": ({**WRITTEN, "history": [CHANGE, SAMPLE]}, True),
        "another round": ({**WRITTEN, "round": 2}, True),
        "a field has gone": ({"progress": {"step": 1}}, True),
    },
)
def test_what_says_more_than_how_far_a_training_is(new: dict[str, Any], more: bool) -> None:
    assert says_more(WRITTEN, new) is more
