"""A registry for the nodes, as in https://kind.sigs.k8s.io/docs/user/local-registry."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

from tests.e2e.job_under_test import run_kubectl

HOSTS = "/etc/containerd/certs.d"  # hack/kind/kind.yaml has containerd read it at each pull
CTR = ("ctr", "--namespace", "k8s.io", "images")


def gateway() -> str:
    """The address of this machine in the nodes' network, which no other network reaches."""
    (network,) = json.loads(_run("docker", "network", "inspect", "kind"))
    gateways = [
        ip_address(each["Gateway"]) for each in network["IPAM"]["Config"] if each.get("Gateway")
    ]
    return str(next(address for address in gateways if address.version == 4))


@contextmanager
def pulled_from(host: str) -> Iterator[None]:
    """All nodes pull from a registry without TLS; at the end they have none of its images."""
    nodes = run_kubectl("get", "nodes", "-o", "name").stdout.replace("node/", "").split()
    folder = f"{HOSTS}/{host}"
    for node in nodes:
        _on(node, "mkdir", "-p", folder)
        _on(node, "sh", "-c", f"echo '[host.\"http://{host}\"]' >{folder}/hosts.toml")
    try:
        yield
    finally:
        for node in nodes:
            _on(node, "rm", "-r", folder)
            _remove_images(node, host)


def _remove_images(node: str, host: str) -> None:
    """Removes a registry's images, with the names that containerd itself gives to them."""
    listed = [line.split()[:3] for line in _on(node, *CTR, "list").splitlines()[1:]]
    digests = {digest for name, _, digest in listed if name.startswith(f"{host}/")}
    names = [name for name, _, digest in listed if digest in digests]
    if names:
        _on(node, *CTR, "remove", *names)


def _on(node: str, *command: str) -> str:
    return _run("docker", "exec", node, *command)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}{done.stdout}"
    return done.stdout
