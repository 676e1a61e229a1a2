"""What of NVIDIA's management library reports Xids, by ctypes. The driver brings it into containers that have GPUs.

Source: NVML's reference, "Event Handling Methods" (https://docs.nvidia.com/deploy/nvml-api/group__nvmlEvents.html).
"""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
XID_EVENTS = 0x8  # nvmlEventTypeXidCriticalError
TIMEOUT = 10  # NVML_ERROR_TIMEOUT
GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST
MAX_UUID_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE


class NvmlError(Exception):
    """A call has failed.

    Attributes:
        code: what it has returned, an nvmlReturn_t.
    """

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of this container.

    Attributes:
        index: NVML's, from 0.
        uuid: as `nvidia-smi -L` shows it.
    """

    index: int
    uuid: str


class _EventData(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("event_type", ctypes.c_ulonglong),
        ("event_data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The library, with an event set for the Xids of this container's GPUs.

    Args:
        path: of the library, or a name that the dynamic linker finds.

    Raises:
        OSError: there is no such library.
    """

    def __init__(self, path: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(path)
        self._events = ctypes.c_void_p()
        self._gpus: dict[int, Gpu] = {}

    def start(self, environment: Mapping[str, str] = os.environ) -> list[Gpu]:
        """Has the driver note Xids from now on; returns the GPUs that are watched. It may take seconds.

        Args:
            environment: of this process. If NVIDIA_VISIBLE_DEVICES names GPUs by UUID, others do not count: a privileged container sees
                all of its node. A GPU that is split (MIG) does not count either, as its events may be those of another container.

        Raises:
            NvmlError: a call has failed.
        """
        self._call("nvmlInit_v2")
        self._call("nvmlEventSetCreate", ctypes.byref(self._events))
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        own = tuple(name for name in environment.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if name.startswith("GPU-"))
        for index in range(count.value):
            device = ctypes.c_void_p()
            if self._code("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device)) or device.value is None:
                continue  # of another container
            gpu = Gpu(index, self._uuid(device))
            if (not own or gpu.uuid.startswith(own)) and not self._is_split(device) and self._register(device):
                self._gpus[device.value] = gpu
        return list(self._gpus.values())

    def wait(self, milliseconds: int) -> tuple[Gpu, int] | None:
        """Waits for the next Xid; returns its GPU and its number; None: there was none in that time.

        Raises:
            NvmlError: the call has failed, with GPU_IS_LOST if a GPU is gone.
        """
        data = _EventData()
        code = self._code("nvmlEventSetWait_v2", self._events, ctypes.byref(data), ctypes.c_uint(milliseconds))
        if code and code != TIMEOUT:
            raise NvmlError("nvmlEventSetWait_v2", code)
        gpu = self._gpus.get(data.device or 0)
        return None if code or gpu is None or data.event_type != XID_EVENTS else (gpu, data.event_data)

    def _uuid(self, device: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(MAX_UUID_BYTES)
        self._call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(MAX_UUID_BYTES))
        return text.value.decode(errors="replace")

    def _is_split(self, device: ctypes.c_void_p) -> bool:
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        return not self._code("nvmlDeviceGetMigMode", device, ctypes.byref(now), ctypes.byref(pending)) and now.value == 1

    def _register(self, device: ctypes.c_void_p) -> bool:
        supported = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetSupportedEventTypes", device, ctypes.byref(supported))
        if not supported.value & XID_EVENTS:
            return False
        self._call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(XID_EVENTS), self._events)
        return True

    def _call(self, name: str, *arguments: object) -> None:
        if code := self._code(name, *arguments):
            raise NvmlError(name, code)

    def _code(self, name: str, *arguments: object) -> int:
        try:
            function = getattr(self._library, name)
        except AttributeError:  # an old driver, or a library of another make
            raise NvmlError(name, -1) from None
        return int(function(*arguments))
