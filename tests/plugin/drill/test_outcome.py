"""What a drill advises after all that it has done."""

from elastic_pytorch_client.drill.faults import Fault, PlannedFault
from elastic_pytorch_client.drill.outcome import Outcome, SeenInterruption, what_to_set
from elastic_pytorch_client.reading.history import HistoryEntry
from elastic_pytorch_client.reading.pods.start import PodStart

GRACE_SECONDS = 10.0


def an_entry(stop_seconds: float) -> HistoryEntry:
    phases = {"stop": stop_seconds, "init": 0.1}
    return HistoryEntry(cause="WorkerLost", seconds=stop_seconds, steps_lost=0, phases=phases)


def an_outcome(*stop_seconds: float, fault: Fault = Fault.POD, start_seconds: float = 1.0) -> Outcome:
    seen = [SeenInterruption(an_entry(seconds), seconds, 2, 2) for seconds in stop_seconds]
    starts = [PodStart(f"lm-{fault}", 0.0, start_seconds)]
    return Outcome(PlannedFault(fault, "does"), seen, 1.0, starts, grace_seconds=GRACE_SECONDS)


def test_a_phase_that_was_slow_each_time_is_named_once_with_its_longest_time() -> None:
    (line,) = what_to_set([an_outcome(9.1), an_outcome(9.2, 8.8, fault=Fault.SCALE)])
    assert line.startswith("stop took 9.2 s. ")
    assert line.endswith("It is 10 now.")


def test_each_pod_that_was_slow_to_start_is_named() -> None:
    lines = what_to_set([an_outcome(0.1, start_seconds=31.0), an_outcome(0.2, fault=Fault.NODE, start_seconds=32.0)])
    assert [line[:11] for line in lines] == ["Pod lm-pod ", "Pod lm-node"]


def test_nothing_was_slow() -> None:
    assert what_to_set([]) == what_to_set([an_outcome(0.1)]) == []
