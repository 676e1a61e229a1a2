import asyncio

import pytest
from elastic_pytorch_operator.model.observed import UnreadableObject
from elastic_pytorch_operator.planning.failed_writes import Answers
from elastic_pytorch_operator.planning.memory import Memory
from elastic_pytorch_operator.planning.plan import plan

from tests.operator.builders import a_job, a_pod, observed
from tests.operator.running_controller import Running

OBJECTS = tuple(UnreadableObject("Pod", f"lm-{number}", "TypeError: 7") for number in range(5))


async def test_event_reports_a_pod_once(running: Running) -> None:
    await running.begin()
    name = running.cluster.pods()[0]["metadata"]["name"]
    for fault in (7, 8):
        running.cluster.set_pod_status("default", name, {"containerStatuses": fault})
        await running.until(lambda: len(running.events("UnreadableObject")) == 1)
    await asyncio.sleep(0.3)
    [note] = running.events("UnreadableObject")
    assert f"Pod {name} (TypeError: " in note
    assert len(running.indices()) == 3, "it keeps its place"


@pytest.mark.parametrize(
    ("before", "now", "note"),
    [
        ((), OBJECTS[:1], "Pod lm-0 (TypeError: 7)"),
        (OBJECTS[:1], OBJECTS[:2], "Pod lm-1 (TypeError: 7)"),
        (
            (),
            OBJECTS,
            "Pod lm-0 (TypeError: 7); Pod lm-1 (TypeError: 7); Pod lm-2 (TypeError: 7); and 2 more",
        ),
        (OBJECTS[:2], OBJECTS[1:2], None),
        (OBJECTS[:2], (), None),
        (OBJECTS, OBJECTS, None),
    ],
)
@pytest.mark.parametrize("backend", ["", "c10d"])
def test_one_event_names_those_that_are_new(
    before: tuple[UnreadableObject, ...],
    now: tuple[UnreadableObject, ...],
    note: str | None,
    backend: str,
) -> None:
    job = a_job(rendezvous={"backend": backend}) if backend else a_job()
    todo = plan(
        job, observed([a_pod(0)], unreadable=now), Memory(answers=Answers(unreadable=before))
    )
    notes = [
        action.note
        for action in todo.actions
        if getattr(action, "reason", "") == "UnreadableObject"
    ]
    assert [words.split(": ", 1)[1] for words in notes] == ([note] if note else [])
    assert todo.memory.answers.unreadable == now
