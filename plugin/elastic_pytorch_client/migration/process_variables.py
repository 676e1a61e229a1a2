"""Variables of each training process that its container does not have."""

import re

from elastic_pytorch_client.migration.torchrun_options import (
    DECIDED,
    DECIDED_FLAGS,
    MOVED,
    variable_of,
)

# Other operators set them in the containers; here each training process has its own.
SET_BY_AGENT = {
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"),
    *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
}
SET_FOR_PROCESSES = SET_BY_AGENT | set(map(variable_of, DECIDED | DECIDED_FLAGS | MOVED))
NAMES = "|".join(sorted(SET_FOR_PROCESSES | {"GROUP_RANK"}))
EXPANDED = re.compile(rf"\$(?:[({{])?({NAMES})\b")
LITERAL = re.compile(rf"\\\$\{{?({NAMES})\b")  # which a shell leaves as it is
EXPANDED_BY_KUBELET = re.compile(rf"\$\(({NAMES})\)")
OF_CONTAINERS = {"PET_NPROC_PER_NODE", "PET_MAX_RESTARTS"}
OF_COMMANDS = OF_CONTAINERS | {"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"}


def unset_variables(text: str, *, command: bool, by_kubelet: bool = False) -> list[str]:
    """The variables that a text reads and its container lacks, in the order of the text.

    Args:
        text: of a shell, or the words of a container.
        command: the container has a `command`, which gets more variables.
        by_kubelet: only the kubelet expands the text, as each training process is a shell itself.
    """
    own = OF_COMMANDS if command else OF_CONTAINERS
    pattern = EXPANDED_BY_KUBELET if by_kubelet else EXPANDED
    found = dict.fromkeys(match[1] for match in pattern.finditer(text))

    def is_set(name: str) -> bool:
        return name in own or bool(re.search(rf"(?:^|[\s;&|(]){name}=", text))

    return [name for name in found if not is_set(name)]


def only_sizes_of_the_group(value: str) -> bool:
    """Whether a value's only variables are the old operator's, for the size of the group."""
    known = rf"\$(?:\((?:{NAMES})\)|\{{(?:{NAMES})\}}|(?:{NAMES})\b)"
    return not re.search(r"[$`]", re.sub(known, "", value))


def listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
