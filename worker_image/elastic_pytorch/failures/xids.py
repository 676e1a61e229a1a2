"""What the Xids of NVIDIA's driver mean: whether a device has failed, or most likely the program on it.

Source: NVIDIA's Xid catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). A device has failed if the catalog
wants its GPU reset or its node started again, or calls the memory or the link broken. For 109 the catalog wants a reset, too. But NVIDIA's
device plugin (k8s-device-plugin internal/rm/health.go) calls it the program's, as it does 13, 31, 43, 45 and 68, and so does this table.
The numbers 144 to 150 do not say how bad an NVLink error is. Of the bad ones, several bring 48, 94 or 95 along.
"""

OF_THE_DEVICE = {
    46: "GPU stopped processing",
    48: "double bit ECC error",
    62: "internal micro-controller halt",
    64: "GPU memory remapping failure",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    155: "NVLink error found by software",
    156: "resource retirement",
    158: "GPU fatal timeout",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}
# Named in the failure of a process, and nothing follows from them.
_NAMED = {
    8: "GPU stopped processing",
    13: "graphics engine exception",
    31: "GPU memory page fault",
    32: "corrupted push buffer stream",
    43: "GPU stopped processing",
    45: "preemptive cleanup after an earlier error",
    63: "GPU memory remapping event",
    68: "video decoder exception",
    69: "graphics engine class error",
    92: "many single bit ECC errors",
    109: "context switch timeout",
    121: "C2C error",
    154: "another recovery action is needed",
    **dict.fromkeys(range(144, 151), "NVLink error"),
}


def words_of(number: int) -> str:
    """What an Xid means, in a few words; empty: it is not in the tables."""
    return OF_THE_DEVICE.get(number) or _NAMED.get(number, "")
