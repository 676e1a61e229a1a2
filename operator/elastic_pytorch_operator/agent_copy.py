"""Copies the agent out of the operator's image into a worker pod: what the init container of `injection.py` runs."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Where the operator's image has what a checkout has in worker_image/.
AGENT_FOLDER = Path("/opt/elastic-pytorch")

PACKAGE = "elastic_pytorch"
STARTER = "__main__.py"
FILE_MODE, FOLDER_MODE = 0o644, 0o755  # whoever runs the training container may read it, whatever the umask is here


class CopyError(RuntimeError):
    """The agent could not be copied; the message says why."""


def copy_agent(target: Path, source: Path = AGENT_FOLDER) -> int:
    """Copies the agent, ready to be put on PYTHONPATH or to be started as `python3 TARGET`.

    Beside the package go its metadata, in which torchrun finds our rendezvous handler.

    Args:
        target: an existing folder.
        source: a folder with the agent's pyproject.toml, package and starter.

    Returns:
        How many files were copied.

    Raises:
        CopyError: something is missing, cannot be written, or does not read back as it was written.
    """
    try:
        files = _files(source)
        for name, content in files.items():
            path = target / name
            for folder in reversed(path.relative_to(target).parents[:-1]):
                if not (target / folder).is_dir():
                    (target / folder).mkdir()
                    (target / folder).chmod(FOLDER_MODE)
            path.write_bytes(content)
            path.chmod(FILE_MODE)
        broken = [name for name, content in files.items() if (target / name).read_bytes() != content]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise CopyError(f"cannot copy the agent from {source} to {target}: {type(error).__name__}: {error}") from error
    if broken:
        raise CopyError(f"the copy of the agent in {target} is broken: {', '.join(broken)}")
    return len(files)


def _files(source: Path) -> dict[str, bytes]:
    """The content of each file of the copy, by its path in it."""
    modules = sorted((source / PACKAGE).rglob("*.py"))
    files = {str(path.relative_to(source)): path.read_bytes() for path in modules}
    files[STARTER] = (source / STARTER).read_bytes()
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    folder = f"{PACKAGE}-{project['version']}.dist-info"
    files[f"{folder}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\n"
    ).encode()
    files[f"{folder}/entry_points.txt"] = _entry_points(project["entry-points"]).encode()
    return files


def _entry_points(groups: Mapping[str, Mapping[str, Any]]) -> str:
    return "\n".join(
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""])
        for group, entries in groups.items()
    )
