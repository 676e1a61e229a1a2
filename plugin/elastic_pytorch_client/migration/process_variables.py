"""Variables that each training process has in its environment, while its container has not."""

import re

NAMES = (
    r"(?:LOCAL_|GROUP_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_ADDR|MASTER_PORT"
    r"|PET_(?:NNODES|NODE_RANK|NPROC_PER_NODE|MAX_RESTARTS|MASTER_ADDR|MASTER_PORT|STANDALONE|LOCAL_ADDR|RDZV_\w+)"
)
EXPANDED = re.compile(rf"\$(?:[({{])?({NAMES})\b")
EXPANDED_BY_KUBELET = re.compile(rf"\$\(({NAMES})\)")
OF_CONTAINERS = {"PET_NPROC_PER_NODE", "PET_MAX_RESTARTS"}
OF_COMMANDS = OF_CONTAINERS | {"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"}


def unset_variables(text: str, *, command: bool, by_kubelet: bool = False) -> list[str]:
    """Those that a text reads, and that the operator does not set in the container, in the order of the text.

    Args:
        text: of a shell, or the words of a container.
        command: whether the container has a `command`, which gets more variables.
        by_kubelet: whether only the kubelet expands the text, since each training process is a shell itself.
    """
    own = OF_COMMANDS if command else OF_CONTAINERS
    found = dict.fromkeys(match[1] for match in (EXPANDED_BY_KUBELET if by_kubelet else EXPANDED).finditer(text))
    return [name for name in found if name not in own and not re.search(rf"(?:^|[\s;&|(]){name}=", text)]


def only_sizes_of_the_group(value: str) -> bool:
    """Whether a value holds no variables but those with which the old operator named the size of the group."""
    return not re.search(r"[$`]", re.sub(rf"\$(?:\((?:{NAMES})\)|\{{(?:{NAMES})\}}|(?:{NAMES})\b)", "", value))


def listed(names: list[str]) -> str:
    """Names as a sentence has them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
