"""Put an image onto nodes of the kind cluster, sending only what they lack.

An image here is its `-base` with one layer of code on top (see the Dockerfiles' stages). The base is large: it goes over
once, to all nodes that lack it in one pass. After that a change of code sends an OCI archive in which only the code's
layer, the manifest and the configuration are present; containerd has the other layers already.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

LABEL = "dev.elasticpytorch.image-id"
CHUNK = 1 << 20
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
INDEX = "application/vnd.oci.image.index.v1+json"


def docker(*arguments, **options):
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, **options).stdout


def ctr(node, *arguments, **options):
    return docker("exec", *(["-i"] if "input" in options else []), node, "ctr", "--namespace", "k8s.io", *arguments, **options)


def inspect(image):
    return json.loads(docker("image", "inspect", image))[0]


def name_on_node(image):
    return f"docker.io/library/{image}"


def sibling(image, stage):
    repository, tag = image.split(":")
    return f"{repository}-{stage}:{tag}"


def has_image(node, image):
    """Whether the node's image of this name was made from Docker's image of this name as it is now."""
    listed = ctr(node, "images", "list", f"name=={name_on_node(image)}").decode()
    return f"{LABEL}={inspect(image)['Id']}" in listed


def missing(image, nodes):
    with ThreadPoolExecutor() as pool:
        return [node for node, has in zip(nodes, pool.map(lambda node: has_image(node, image), nodes), strict=True) if not has]


def mark(node, image):
    ctr(node, "images", "label", name_on_node(image), f"{LABEL}={inspect(image)['Id']}")


def import_command(node):
    return [
        *("docker", "exec", "-i", node, "ctr", "--namespace", "k8s.io", "images", "import"),
        *("--all-platforms", "--digests", "--snapshotter", "overlayfs", "-"),
    ]


def send_whole(image, nodes):
    """Send all of an image to all nodes, reading it once."""
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as source:
        sinks = [subprocess.Popen(import_command(node), stdin=subprocess.PIPE) for node in nodes]
        while chunk := source.stdout.read(CHUNK):
            for sink in sinks:
                sink.stdin.write(chunk)
        for sink in sinks:
            sink.stdin.close()
        failed = [node for node, sink in zip(nodes, sinks, strict=True) if sink.wait()]
    if failed or source.returncode:
        sys.exit(f"{image} could not be sent to {', '.join(failed) or 'any node'}.")
    for node in nodes:
        mark(node, image)


def send_code(image, nodes):
    """Send an image's code to nodes that have its base."""
    base_layers = layers_on_node(nodes[0], sibling(image, "base"))
    archive = thin_archive(image, base_layers)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: subprocess.run(import_command(node), check=True, input=archive), nodes))
    for node in nodes:
        mark(node, image)


def layers_on_node(node, image):
    """The descriptors of an image's layers as the node's containerd has stored them."""
    listed = ctr(node, "images", "list", f"name=={name_on_node(image)}").decode()
    digest = listed.splitlines()[1].split()[2]
    content = json.loads(ctr(node, "content", "get", digest))
    if "manifests" in content:
        content = json.loads(ctr(node, "content", "get", content["manifests"][0]["digest"]))
    return content["layers"]


def saved_layers(image):
    """The layers of an image, uncompressed, in order."""
    with tarfile.open(fileobj=io.BytesIO(docker("save", image))) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]
        return [archive.extractfile(path).read() for path in manifest["Layers"]]


def thin_archive(image, base_layers):
    """Build an OCI archive of an image without the layers of its base."""
    final, base = inspect(image), inspect(sibling(image, "base"))
    code = saved_layers(sibling(image, "code"))
    base_ids, code_ids = base["RootFS"]["Layers"], [digest_of(layer) for layer in code]
    if len(final["RootFS"]["Layers"]) != len(base_ids) + len(code_ids):
        sys.exit(f"{image} is more than its base and its code: its last stage may only lay one on the other.")
    config = as_json(
        {
            "architecture": final["Architecture"],
            "os": final["Os"],
            "created": final["Created"],
            "config": final["Config"],
            "rootfs": {"type": "layers", "diff_ids": base_ids + code_ids},
        }
    )
    manifest = as_json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, config),
            "layers": base_layers + [descriptor(LAYER, layer) for layer in code],
        }
    )
    annotations = {"io.containerd.image.name": name_on_node(image)}
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [descriptor(MANIFEST, manifest) | {"annotations": annotations}],
    }
    blobs = {f"blobs/sha256/{digest_of(blob).removeprefix('sha256:')}": blob for blob in [config, manifest, *code]}
    return tar({"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), **blobs, "index.json": as_json(index)})


def as_json(value):
    return json.dumps(value, sort_keys=True).encode()


def digest_of(blob):
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def descriptor(media_type, blob):
    return {"mediaType": media_type, "digest": digest_of(blob), "size": len(blob)}


def tar(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list-missing", action="store_true", help="only print the nodes that lack the image")
    parser.add_argument("image")
    parser.add_argument("nodes", nargs="+")
    arguments = parser.parse_args()
    if arguments.list_missing:
        print(*missing(arguments.image, arguments.nodes), sep="\n", end="")
        return
    base = sibling(arguments.image, "base")
    without_base = missing(base, arguments.nodes)
    if without_base:
        print(f"sending {base} to {', '.join(without_base)}", flush=True)
        send_whole(base, without_base)
    print(f"sending the code of {arguments.image} to {', '.join(arguments.nodes)}", flush=True)
    send_code(arguments.image, arguments.nodes)


if __name__ == "__main__":
    main()
