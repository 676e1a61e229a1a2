"""Makes what krew installs: an archive of the plugin, and its manifest.

The same sources make the same bytes, except for the wheel's own build.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import string
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PIP_WHEEL = (
    *("-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
    *("--no-deps", "--no-build-isolation"),
)
BUILT_AT = "315532800"  # 1980, the first year of a wheel's files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--uri", required=True, help="where the archive will be")
    parser.add_argument("--homepage", required=True)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    version = tomllib.loads((ROOT / "plugin" / "pyproject.toml").read_text())["project"]["version"]
    options.output.mkdir(parents=True, exist_ok=True)
    archive, manifest = options.output / "kubectl-epj.tar.gz", options.output / "epj.yaml"
    archive.write_bytes(pack(version))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    template = string.Template((HERE / "epj.yaml.template").read_text())
    places = {"homepage": options.homepage, "uri": options.uri}
    manifest.write_text(template.substitute(version=version, sha256=sha256, **places))
    print(f"{archive}\n{manifest}")


def build_wheel() -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("*.egg-info", "build", "__pycache__")
        sources = shutil.copytree(ROOT / "plugin", Path(folder, "plugin"), ignore=ignored)
        command = [sys.executable, *PIP_WHEEL, "--wheel-dir", folder, str(sources)]
        subprocess.run(command, check=True, env={"SOURCE_DATE_EPOCH": BUILT_AT, **os.environ})
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.name, wheel.read_bytes()


def pack(version: str) -> bytes:
    launcher = (HERE / "kubectl-epj").read_text().replace("@VERSION@", version).encode()
    files = {
        "kubectl-epj": launcher,
        **dict([build_wheel()]),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if content is launcher else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


if __name__ == "__main__":
    main()
