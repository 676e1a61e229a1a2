"""Prints what a release was made from: an in-toto statement with SLSA's provenance.

The subjects are the files in DIST, and the images of DIST/images.txt. The inputs are base images
and their digests, one in each line. https://slsa.dev/spec/v1.0/provenance describes the statement.
Anyone who runs `make release` is the builder: that is level 1, no more.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BUILD_TYPE = "urn:elastic-pytorch-operator:make-release:v1"
BUILDER = "urn:elastic-pytorch-operator:make-release"


def statement(
    subjects: Mapping[str, str],
    parameters: Mapping[str, str],
    commit: str,
    inputs: Iterable[tuple[str, str]],
) -> dict[str, Any]:
    """The statement about subjects with their SHA-256, and inputs with digests (sha256:...)."""
    source = {"uri": "git+file:.", "digest": {"gitCommit": commit}}
    bases = [
        {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}
        for name, digest in sorted(set(inputs))
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}}
            for name, digest in sorted(subjects.items())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [source, *bases],
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def subjects_of(dist: Path) -> dict[str, str]:
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in dist.iterdir()}
    references = (dist / "images.txt").read_text().split()
    return files | dict(reference.split("@sha256:") for reference in references)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dist", type=Path)
    for option in ("version", "registry", "commit"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--inputs", required=True, type=Path)
    options = parser.parse_args()
    parameters = {"VERSION": options.version, "REGISTRY": options.registry}
    lines = options.inputs.read_text().splitlines()
    inputs = [(name, digest) for name, digest in map(str.split, lines)]
    made = statement(subjects_of(options.dist), parameters, options.commit, inputs)
    json.dump(made, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
