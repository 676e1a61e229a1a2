"""Variables that each training process has in its environment, while its container has not."""

import re

# In the containers, both operators before set what these say; here each training process has its
# own.
SET_BY_AGENT = {
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
}
SET_BY_OPERATOR = {
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_NPROC_PER_NODE",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_STANDALONE",
    "PET_LOCAL_ADDR",
}
NAMES = "|".join(
    (*sorted(SET_BY_AGENT | SET_BY_OPERATOR | {"GROUP_RANK", "PET_MAX_RESTARTS"}), r"PET_RDZV_\w+")
)
EXPANDED = re.compile(rf"\$(?:[({{])?({NAMES})\b")
LITERAL = re.compile(rf"\\\$\{{?({NAMES})\b")  # a shell passes it on as it is written
EXPANDED_BY_KUBELET = re.compile(rf"\$\(({NAMES})\)")
OF_CONTAINERS = {"PET_NPROC_PER_NODE", "PET_MAX_RESTARTS"}
OF_COMMANDS = OF_CONTAINERS | {"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"}


def is_set_for_processes(variable: str) -> bool:
    return (
        variable in SET_BY_AGENT | SET_BY_OPERATOR
        or variable.startswith("PET_RDZV_")
        or variable == "PET_MAX_RESTARTS"
    )


def unset_variables(text: str, *, command: bool, by_kubelet: bool = False) -> list[str]:
    """Those that a text reads, and that the operator does not set in the container, in the order of the text.

    Args:
        text: of a shell, or the words of a container.
        command: whether the container has a `command`, which gets more variables.
        by_kubelet: whether only the kubelet expands the text, since each training process is a
            shell itself.
    """
    own = OF_COMMANDS if command else OF_CONTAINERS
    found = dict.fromkeys(
        match[1] for match in (EXPANDED_BY_KUBELET if by_kubelet else EXPANDED).finditer(text)
    )
    return [
        name for name in found if name not in own and not re.search(rf"(?:^|[\s;&|(]){name}=", text)
    ]


def only_sizes_of_the_group(value: str) -> bool:
    """Whether a value holds no variables but those with which the old operator named the size of the group."""
    return not re.search(
        r"[$`]", re.sub(rf"\$(?:\((?:{NAMES})\)|\{{(?:{NAMES})\}}|(?:{NAMES})\b)", "", value)
    )


def listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
