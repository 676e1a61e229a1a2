"""Makes what krew installs: an archive of the plugin, and the manifest that names it.

    .venv/bin/python hack/krew/release.py --uri https://…/kubectl-epj.tar.gz --homepage https://… --output dist

The same sources make the same archive, to the byte but for the wheel's own build.
"""

import argparse
import gzip
import hashlib
import io
import os
import string
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILT_AT = "315532800"  # 1980, the first year that a wheel can tell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--uri", required=True, help="where the archive will be")
    parser.add_argument("--homepage", required=True)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    version = tomllib.loads((ROOT / "plugin" / "pyproject.toml").read_text())["project"]["version"]
    options.output.mkdir(parents=True, exist_ok=True)
    archive = options.output / "kubectl-epj.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        archive.write_bytes(pack(build_wheel(Path(folder)), version))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    template = string.Template((HERE / "epj.yaml.template").read_text())
    manifest = template.substitute(version=version, homepage=options.homepage, uri=options.uri, sha256=sha256)
    (options.output / "epj.yaml").write_text(manifest)
    print(f"{archive}\n{options.output / 'epj.yaml'}")


def build_wheel(folder: Path) -> Path:
    """The plugin's wheel, built in a folder from a copy of its sources."""
    sources = folder / "plugin"
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "plugin"]
    for name in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            copy = folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-build-isolation",
    ]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": BUILT_AT}
    subprocess.run([*build, "--wheel-dir", str(folder), str(sources)], check=True, env=environment)
    return next(folder.glob("*.whl"))


def pack(wheel: Path, version: str) -> bytes:
    """The archive: the launcher, the wheel and the licence."""
    files = {
        "kubectl-epj": ((HERE / "kubectl-epj").read_text().replace("@VERSION@", version).encode(), 0o755),
        wheel.name: (wheel.read_bytes(), 0o644),
        "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
    }
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


if __name__ == "__main__":
    main()
