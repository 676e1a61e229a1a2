"""Xids that the driver reports while processes train: read from a library that a test drives, and what they say of a failure."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from elastic_pytorch.failures.device_faults import DEVICE_FAULT
from elastic_pytorch.failures.failure import MAX_MESSAGE_BYTES, OUT_OF_MEMORY, Failure
from elastic_pytorch.failures.local_failures import LocalFailures
from elastic_pytorch.failures.nvml import GPU_IS_LOST, Gpu, Nvml, NvmlError
from elastic_pytorch.failures.xid_events import EXPLAINS_SECONDS, LOST, XidEvents, watch_xids
from elastic_pytorch.failures.xids import OF_THE_DEVICE, words_of

from tests.waiting import until
from tests.worker_image.fake_nvml import FakeNvml, needs_compiler

GPU_3 = Gpu(3, "GPU-7c31")
OFF_THE_BUS = "GPU 3 reported Xid 79: the GPU has fallen off the bus"
LAUNCH = "AcceleratorError: CUDA error: unspecified launch failure"
PEER = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.244.1.5]:41231"


def about_gpus(log: pytest.LogCaptureFixture) -> list[str]:
    """What is logged of them: threads that other tests have left may log something else."""
    return [text for text in log.messages if "GPU" in text or "Xid" in text]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def failure(message: str = "ValueError: boom", exception: str = "ValueError") -> Failure:
    return Failure(0, 0, 7, 1, 99.0, exception, message, f"Traceback …\n{message}")


@pytest.mark.parametrize(
    ("number", "words"),
    [(79, "the GPU has fallen off the bus"), (31, "GPU memory page fault"), (147, "NVLink error"), (999, "")],
)
def test_words_of_an_xid(number: int, words: str) -> None:
    assert words_of(number) == words


@pytest.mark.parametrize("number", [8, 13, 31, 43, 45, 68, 109, 63, 144, 154, 999])
def test_xid_of_a_program_breaks_no_device(number: int) -> None:
    found = XidEvents()
    found.note(GPU_3, number)
    assert not found.fault


def test_first_fault_stays() -> None:
    found, rung = XidEvents(), []
    found.on_fault = lambda: rung.append(found.fault)
    for number in (79, 48, 79):
        found.note(GPU_3, number)
    assert rung == [OFF_THE_BUS]
    assert found.fault == OFF_THE_BUS


@pytest.mark.parametrize(
    ("numbers", "seconds", "failed", "echo", "exception", "message"),
    [
        ((79,), 1, failure(), False, DEVICE_FAULT, f"a device has failed ({OFF_THE_BUS}): ValueError: boom"),
        ((79,), 1, failure(PEER, "RuntimeError"), True, DEVICE_FAULT, f"a device has failed ({OFF_THE_BUS}): {PEER}"),
        ((79,), 600, failure(LAUNCH, "X"), False, DEVICE_FAULT, f"a device has failed ({OFF_THE_BUS}): {LAUNCH}"),
        ((79,), 600, failure(), False, "ValueError", "ValueError: boom"),
        ((79,), 600, failure(PEER, "RuntimeError"), True, "RuntimeError", PEER),
        ((79,), 1, failure("killed", OUT_OF_MEMORY), False, OUT_OF_MEMORY, "killed"),
        ((48,), 1, failure("a device has failed (x): y", DEVICE_FAULT), False, DEVICE_FAULT,
         "GPU 3 reported Xid 48: double bit ECC error; a device has failed (x): y"),
        ((31, 43), 1, failure(LAUNCH, "X"), False, "X",
         f"{LAUNCH}\nGPU 3 reported Xid 31: GPU memory page fault; GPU 3 reported Xid 43: GPU stopped processing"),
        ((999,), 1, failure(), False, "ValueError", "ValueError: boom\nGPU 3 reported Xid 999"),
        ((31,), 600, failure(LAUNCH, "X"), False, "X", LAUNCH),
        ((), 1, failure(LAUNCH, "X"), False, "X", LAUNCH),
    ],
)  # fmt: skip
def test_failure_says_what_the_driver_has_reported(
    numbers: tuple[int, ...], seconds: float, failed: Failure, echo: bool, exception: str, message: str
) -> None:
    clock = Clock()
    found = XidEvents(clock)
    for number in numbers:
        found.note(GPU_3, number)
    clock.now += seconds
    explained = found.explain(failed, echo=echo)
    assert (explained.exception, explained.message) == (exception, message)


def test_long_message_leaves_room_for_the_xid() -> None:
    found = XidEvents()
    found.note(GPU_3, 13)
    explained = found.explain(failure("é" * 2000), echo=False)
    assert explained.message.endswith("\nGPU 3 reported Xid 13: graphics engine exception")
    assert len(explained.message.encode()) <= MAX_MESSAGE_BYTES


def test_cause_alone_is_explained() -> None:
    found = XidEvents()
    found.note(GPU_3, 79)
    failures = LocalFailures(xids=found)
    assert failures.in_order() == []
    failures.add(Failure(0, 0, 7, 1, 10.0, "RuntimeError", PEER))
    failures.add(Failure(1, 1, 8, 1, 11.0, "AcceleratorError", LAUNCH))
    assert [(each.local_rank, each.exception) for each in failures.in_order()] == [(1, DEVICE_FAULT), (0, "RuntimeError")]


def test_storm_of_one_xid_is_logged_once(log: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    found = XidEvents(clock)
    for _ in range(50):
        found.note(GPU_3, 63)
    assert len(about_gpus(log)) == 1
    clock.now += EXPLAINS_SECONDS + 1
    found.note(GPU_3, 63)
    assert len(about_gpus(log)) == 2


# With the library.


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    fake = FakeNvml(tmp_path)
    monkeypatch.setenv("FAKE_NVML", str(fake.events))
    yield fake


@needs_compiler
@pytest.mark.parametrize(
    ("visible", "hidden", "gpus"),
    [
        (None, None, [0, 1]),
        ("all", None, [0, 1]),
        ("void", "0", [1]),
        ("GPU-1111", None, [1]),
        ("GPU-1111,GPU-0000", None, [0, 1]),
        ("GPU-9999", None, []),
        ("MIG-5", "1", [0]),
    ],
)
def test_own_whole_gpus_are_watched(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str | None, hidden: str | None, gpus: list[int]
) -> None:
    if hidden:
        monkeypatch.setenv("FAKE_NVML_HIDDEN", hidden)
    library = Nvml(str(nvml.library))
    assert [gpu.index for gpu in library.start({} if visible is None else {"NVIDIA_VISIBLE_DEVICES": visible})] == gpus


@needs_compiler
def test_events_are_those_of_watched_gpus(nvml: FakeNvml) -> None:
    library = Nvml(str(nvml.library))
    library.start({"NVIDIA_VISIBLE_DEVICES": "GPU-0000"})
    assert library.wait(5) is None
    nvml.report("1 79", "0 31", "2 79", "lost")
    assert library.wait(10_000) == (Gpu(0, "GPU-0000"), 31)
    with pytest.raises(NvmlError) as error:
        library.wait(10_000)
    assert error.value.code == GPU_IS_LOST


@needs_compiler
def test_thread_passes_events_on_until_a_gpu_is_lost(nvml: FakeNvml, log: pytest.LogCaptureFixture) -> None:
    found, rung = XidEvents(), []
    found.on_fault = lambda: rung.append(found.fault)
    watch_xids(found, str(nvml.library))
    nvml.report("1 31", "lost")
    until(lambda: rung, "the fault")
    assert rung == [LOST]
    assert about_gpus(log) == ["GPU 1 reported Xid 31: GPU memory page fault (GPU-1111)", LOST]


@needs_compiler
def test_driver_that_does_not_start_is_no_fault(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("FAKE_NVML")
    found = XidEvents()
    watch_xids(found, str(nvml.library))
    assert until(lambda: about_gpus(log), "a line")[0] == "the driver reports no Xids here: nvmlInit_v2 returned 999"
    assert not found.fault


def test_image_without_the_library_has_no_thread(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    watch_xids(XidEvents(), str(tmp_path / "libnvidia-ml.so.1"))
    assert not about_gpus(log)


def test_library_of_another_make_is_no_fault() -> None:
    with pytest.raises(NvmlError, match="nvmlInit_v2 returned -1"):
        Nvml("libc.so.6").start({})


def test_each_fault_of_a_device_has_words() -> None:
    assert all(words_of(number) for number in OF_THE_DEVICE)
