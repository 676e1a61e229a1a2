"""What an SPDX document says of the packages in an image."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import sbom
from sbom import Package

DIGEST = "sha256:" + "0" * 64
STATUS = """Package: base-files
Status: install ok installed
Architecture: amd64
Version: 12.4+deb12u12
Description: Debian base system miscellaneous files
 This package contains the basic filesystem hierarchy.

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: tzdata
Status: install ok installed
Architecture: all
Version: 2025b-0+deb12u2
"""


def debian(name: str, version: str, architecture: str) -> Package:
    return Package(name, version, f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}")


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (STATUS, [debian("base-files", "12.4+deb12u12", "amd64"), debian("tzdata", "2025b-0+deb12u2", "all")]),
        # What `dpkg-deb --field` prints of one package has no Status.
        (
            "Package: busybox-static\nVersion: 1:1.37.0-6\nArchitecture: arm64\n",
            [debian("busybox-static", "1:1.37.0-6", "arm64")],
        ),
        ("", []),
    ],
)
def test_debian_packages_are_those_that_are_installed(status: str, found: list[Package]) -> None:
    assert list(sbom.debian_packages(status)) == found


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ("Name: PyYAML\nVersion: 6.0\n\nName: text\n", Package("PyYAML", "6.0", "pkg:pypi/pyyaml@6.0")),
        (
            "Name: typing_extensions\nVersion: 4\nLicense-Expression: PSF-2.0\n",
            Package("typing_extensions", "4", "pkg:pypi/typing-extensions@4", "PSF-2.0"),
        ),
    ],
)
def test_python_package_is_named_as_the_index_names_it(metadata: str, found: Package) -> None:
    assert sbom.python_package(metadata) == found


def test_document_describes_the_image_and_each_package_once() -> None:
    a, b = Package("a", "1", "pkg:pypi/a@1", "MIT"), Package("b", "2", "pkg:pypi/b@2")
    document = sbom.document(Package("image", "0.3.0", "pkg:oci/image"), DIGEST, 0, [b, a, b])
    assert [package["name"] for package in document["packages"]] == ["image", "a", "b"]
    assert [package["licenseDeclared"] for package in document["packages"]] == ["NOASSERTION", "MIT", "NOASSERTION"]
    assert document["packages"][0]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "0" * 64}]
    assert document["creationInfo"]["created"] == "1970-01-01T00:00:00Z"
    identities = {"SPDXRef-DOCUMENT", *(package["SPDXID"] for package in document["packages"])}
    assert len(identities) == 4
    assert {
        one for relation in document["relationships"] for one in (relation["spdxElementId"], relation["relatedSpdxElement"])
    } == identities
    assert sbom.document(Package("image", "0.3.0", "pkg:oci/image"), DIGEST, 0, [a, b]) == document, "whatever the order"


def test_file_of_a_later_layer_replaces_that_of_an_earlier_one(tmp_path: Path) -> None:
    path = "opt/venv/lib/python3.11/site-packages/one.dist-info/METADATA"
    older, newer = ({path: f"Name: one\nVersion: {version}\n".encode()} for version in (1, 2))
    layers = [store(tmp_path, archive(files)) for files in ({"var/lib/dpkg/status": STATUS.encode(), **older}, newer)]
    manifest = store(tmp_path, json.dumps({"layers": [{"digest": digest} for digest in layers]}).encode())
    index: dict[str, Any] = {"manifests": [{"digest": manifest}]}
    found = {package.name: package.version for package in sbom.packages_of(tmp_path, index)}
    assert found == {"base-files": "12.4+deb12u12", "tzdata": "2025b-0+deb12u2", "one": "2"}


def archive(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def store(layout: Path, content: bytes) -> str:
    """Writes a blob into an OCI layout, and returns its digest."""
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    sbom.blob(layout, digest).write_bytes(content)
    return digest
