"""Puts an image onto nodes of the kind cluster, and sends only what they lack.

An image is its large `-base`, which is sent once, and one layer of code (see the Dockerfiles'
stages). A change of code sends an OCI archive of that layer, the manifest and the configuration;
containerd has the other layers.
"""

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

LABEL = "dev.elasticpytorch.image-id"
REGISTRY = "docker.io/library/"  # containerd's default
OCI = "application/vnd.oci.image"
IMPORT = ("images", "import", "--all-platforms", "--digests", "--snapshotter", "overlayfs")
SHARED_ON_NODE = "/shared"  # where kind.yaml mounts the folder that $SHARED names


def docker(*arguments: str) -> bytes:
    return subprocess.run(
        ["docker", *arguments], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ).stdout


def ctr(node: str, *arguments: str) -> list[str]:
    return ["exec", node, "ctr", "--namespace", "k8s.io", *arguments]


def inspect(image: str) -> Any:
    return json.loads(docker("image", "inspect", image))[0]


def sibling(image: str, stage: str) -> str:
    repository, tag = image.split(":")
    return f"{repository}-{stage}:{tag}"


def listed(node: str, image: str) -> str:
    return docker(*ctr(node, "images", "list", f"name=={REGISTRY}{image}")).decode()


def missing(image: str, nodes: Sequence[str]) -> list[str]:
    """The nodes that lack Docker's present image of this name."""
    label = f"{LABEL}={inspect(image)['Id']}"
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda node: label in listed(node, image), nodes)
        return [node for node, has_image in zip(nodes, found, strict=True) if not has_image]


def send(image: str, nodes: Sequence[str], write_archive: Callable[[IO[bytes]], None]) -> None:
    """Imports an archive of an image on nodes, from a shared folder: `docker exec` pipes slowly."""
    with tempfile.NamedTemporaryFile(
        dir=os.environ["SHARED"], prefix="image-", suffix=".tar"
    ) as file:
        write_archive(file)
        file.flush()
        import_archive = (*IMPORT, f"{SHARED_ON_NODE}/{Path(file.name).name}")

        def import_on(node: str) -> int:
            return subprocess.run(
                ["docker", *ctr(node, *import_archive)], stdin=subprocess.DEVNULL, check=False
            ).returncode

        with ThreadPoolExecutor() as pool:
            statuses = list(pool.map(import_on, nodes))
    if failed := [node for node, status in zip(nodes, statuses, strict=True) if status]:
        sys.exit(f"{image} could not be sent to {', '.join(failed)}.")
    label = f"{LABEL}={inspect(image)['Id']}"
    for node in nodes:
        docker(*ctr(node, "images", "label", REGISTRY + image, label))


def send_whole(image: str, nodes: Sequence[str]) -> None:
    def save(file: IO[bytes]) -> None:
        if subprocess.run(["docker", "save", image], stdout=file, check=False).returncode:
            sys.exit(f"{image} could not be read.")

    send(image, nodes, save)


def layers_on_node(node: str, image: str) -> list[dict[str, Any]]:
    digest = listed(node, image).splitlines()[1].split()[2]
    content = json.loads(docker(*ctr(node, "content", "get", digest)))
    if "manifests" in content:
        content = json.loads(
            docker(*ctr(node, "content", "get", content["manifests"][0]["digest"]))
        )
    layers: list[dict[str, Any]] = content["layers"]
    return layers


def saved_layers(image: str) -> list[bytes]:
    with tarfile.open(fileobj=io.BytesIO(docker("save", image))) as archive:
        files: dict[str, bytes] = {}
        for entry in archive:
            if entry.isfile() and (content := archive.extractfile(entry)):
                files[entry.name] = content.read()
    return [files[path] for path in json.loads(files["manifest.json"])[0]["Layers"]]


def write_thin_archive(image: str, base_layers: Sequence[dict[str, Any]], file: IO[bytes]) -> None:
    final, code = inspect(image), saved_layers(sibling(image, "code"))
    diff_ids = [*inspect(sibling(image, "base"))["RootFS"]["Layers"], *map(digest_of, code)]
    if len(final["RootFS"]["Layers"]) != len(diff_ids):
        sys.exit(
            f"{image} is more than its base and its code: its last stage may only lay one on the "
            "other."
        )
    kept = {name.lower(): final[name] for name in ("Architecture", "Os", "Created", "Config")}
    config = as_json(kept | {"rootfs": {"type": "layers", "diff_ids": diff_ids}})
    layers = [*base_layers, *(descriptor(f"{OCI}.layer.v1.tar", layer) for layer in code)]
    manifest_type, version = f"{OCI}.manifest.v1+json", {"schemaVersion": 2}
    described = descriptor(f"{OCI}.config.v1+json", config)
    manifest = as_json(
        {**version, "mediaType": manifest_type, "config": described, "layers": layers}
    )
    named = descriptor(manifest_type, manifest) | {
        "annotations": {"io.containerd.image.name": REGISTRY + image}
    }
    files = {
        "oci-layout": as_json({"imageLayoutVersion": "1.0.0"}),
        **{
            f"blobs/{digest_of(blob).replace(':', '/')}": blob for blob in (config, manifest, *code)
        },
        "index.json": as_json(
            {**version, "mediaType": f"{OCI}.index.v1+json", "manifests": [named]}
        ),
    }
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def as_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def digest_of(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--list-missing", action="store_true", help="only print the nodes that lack the image"
    )
    parser.add_argument(
        "--whole", action="store_true", help="for an image without a base of its own"
    )
    parser.add_argument("image")
    parser.add_argument("nodes", nargs="+")
    options = parser.parse_args()
    if options.list_missing:
        print(*missing(options.image, options.nodes), sep="\n", end="")
        return
    if options.whole:
        send_whole(options.image, options.nodes)
        return
    base = sibling(options.image, "base")
    if without_base := missing(base, options.nodes):
        print(f"sending {base} to {', '.join(without_base)}", flush=True)
        send_whole(base, without_base)
    print(f"sending the code of {options.image} to {', '.join(options.nodes)}", flush=True)
    base_layers = layers_on_node(options.nodes[0], base)
    send(
        options.image,
        options.nodes,
        lambda file: write_thin_archive(options.image, base_layers, file),
    )


if __name__ == "__main__":
    main()
