"""Lists what is in an image: an SPDX 2.3 document of its Debian and Python packages, on the standard output.

    .venv/bin/python hack/release/sbom.py LAYOUT --name elastic-pytorch-agent --version 0.3.0 --registry registry.example.com --created 0

LAYOUT is an OCI layout with one image, for one or more platforms. Debian's packages are read from dpkg's status, or from status.d as
distroless images have it; Python's from their METADATA. https://spdx.github.io/spdx-spec/v2.3 describes the document.
"""

import argparse
import json
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

UNKNOWN = "NOASSERTION"
DPKG = re.compile(r"var/lib/dpkg/(status|status\.d/[^/]+)$")
METADATA = re.compile(r"[^/]+\.dist-info/METADATA$")


class Package(NamedTuple):
    """A package of an image; `purl` names it wherever it comes from (https://github.com/package-url/purl-spec)."""

    name: str
    version: str
    purl: str
    license: str = UNKNOWN


def debian_packages(status: str) -> Iterator[Package]:
    """Yields the packages of a file in the format of /var/lib/dpkg/status."""
    for paragraph in re.split(r"\n\s*\n", status):
        fields = HeaderParser().parsestr(paragraph.lstrip("\n"))
        if fields["Package"] and fields.get("Status", "installed").endswith("installed"):
            name, version, architecture = (fields[key] for key in ("Package", "Version", "Architecture"))
            yield Package(name, version, f"pkg:deb/debian/{name}@{quote(version, safe=':')}?arch={architecture}")


def python_package(metadata: str) -> Package:
    """Returns the package that a METADATA file describes."""
    fields = HeaderParser().parsestr(metadata)
    name, version = fields["Name"], fields["Version"]
    pypi_name = re.sub(r"[-_.]+", "-", name).lower()
    return Package(name, version, f"pkg:pypi/{pypi_name}@{version}", fields.get("License-Expression", UNKNOWN))


def document(image: Package, digest: str, created: int, packages: Iterable[Package]) -> dict[str, Any]:
    """Returns the SPDX document of an image with this digest (sha256:...), created at this Unix time."""
    described = _described("SPDXRef-Image", image) | {"primaryPackagePurpose": "CONTAINER"}
    described["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest.removeprefix("sha256:")}]
    contained = [_described(f"SPDXRef-Package-{number}", package) for number, package in enumerate(sorted(set(packages)))]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image")]
    relations += [("SPDXRef-Image", "CONTAINS", package["SPDXID"]) for package in contained]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image.name}-{image.version}",
        "documentNamespace": f"urn:elastic-pytorch-operator:sbom:{image.name}:{digest}",
        "creationInfo": {
            "created": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: elastic-pytorch-operator-make-release"],
        },
        "packages": [described, *contained],
        "relationships": [
            {"spdxElementId": one, "relationshipType": relation, "relatedSpdxElement": other}
            for one, relation, other in relations
        ],
    }


def _described(identity: str, package: Package) -> dict[str, Any]:
    reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": package.purl}
    return {
        "SPDXID": identity,
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": package.license,
        "copyrightText": UNKNOWN,
        "externalRefs": [reference],
    }


def packages_of(layout: Path, index: dict[str, Any]) -> Iterator[Package]:
    """Yields the packages of all platforms; a file of a later layer replaces the same file of an earlier one."""
    for platform in index["manifests"]:
        files: dict[str, str] = {}
        for layer in json.loads(blob(layout, platform["digest"]).read_text())["layers"]:
            with tarfile.open(blob(layout, layer["digest"])) as archive:
                for entry in archive:
                    if entry.isfile() and (DPKG.search(entry.name) or METADATA.search(entry.name)):
                        files[entry.name] = archive.extractfile(entry).read().decode()  # type: ignore[union-attr]
        for name, text in files.items():
            if DPKG.search(name):
                yield from debian_packages(text)
            else:
                yield python_package(text)


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("layout", type=Path)
    for option in ("name", "version", "registry"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--created", required=True, type=int, help="the Unix time that the document says it was created at")
    options = parser.parse_args()
    (image,) = json.loads((options.layout / "index.json").read_text())["manifests"]
    index = json.loads(blob(options.layout, image["digest"]).read_text())
    purl = f"pkg:oci/{options.name}@{image['digest']}?repository_url={options.registry}/{options.name}&tag={options.version}"
    described = Package(options.name, options.version, purl)
    json.dump(document(described, image["digest"], options.created, packages_of(options.layout, index)), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
