"""Whether the torch in an image is new enough, where the image's tag tells its release."""

import re

OLDEST_FOR_ARGS, OLDEST_FOR_COMMANDS = (2, 4), (2, 6)
# PyTorch's own images, whose tags begin with torch's release.
PYTORCH = re.compile(r"(?:docker\.io/|ghcr\.io/)?pytorch/pytorch:(\d+)\.(\d+)(?![\d])")
# NVIDIA's images by year and month, with the first ones that have such a torch.
NVIDIA = re.compile(r"nvcr\.io/nvidia/pytorch:(\d\d)\.(\d\d)-")
FIRST_OF_NVIDIA = {OLDEST_FOR_ARGS: (24, 5), OLDEST_FOR_COMMANDS: (24, 11)}


def too_old(image: str, *, command: bool) -> str:
    """What to say of an image whose torch is too old; empty: it is not, or its tag does not tell.

    Args:
        image: of the container that trains.
        command: whether its own command starts torchrun, or may.
    """
    needed = OLDEST_FOR_COMMANDS if command else OLDEST_FOR_ARGS
    wanted = f"torch {needed[0]}.{needed[1]} or newer, and Python 3.10 or newer"
    why = "a command that calls torchrun needs" if command else "workers need"
    if (found := PYTORCH.match(image)) and (int(found[1]), int(found[2])) < needed:
        return f"has torch {found[1]}.{found[2]}: {why} {wanted}"
    if (found := NVIDIA.match(image)) and (int(found[1]), int(found[2])) < (first := FIRST_OF_NVIDIA[needed]):
        return f"has a torch that is too old: {why} {wanted}, as NVIDIA's images have since {first[0]}.{first[1]:02}"
    return ""
