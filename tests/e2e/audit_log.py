"""What the operator has asked of the API server, from its audit log (hack/kind/audit.sh)."""

import json
import subprocess
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from measure.kind_cluster import CONTROL_PLANE

LOGS = "/var/log/pods/kube-system_kube-apiserver-*/kube-apiserver/*.log*"


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the operator's.

    Attributes:
        group: of the resource; empty for the core group.
        resource: with its subresource, as roles write it; or the path of a URL that is no
            resource's.
        verb: as roles write it.
        pod: which asked.
        allowed: whether the API server let it.
    """

    group: str
    resource: str
    verb: str
    pod: str
    allowed: bool


def requests_between(begin: datetime, end: datetime) -> set[Request]:
    """The kinds of requests that came between two moments, none of them twice."""
    command = ["docker", "exec", CONTROL_PLANE, "sh", "-c", f'grep -h \'"kind":"Event"\' {LOGS}']
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    found = set()
    for line in text.splitlines():
        # Each line of a container's log begins with a time, the stream, and F for a full line.
        event = json.loads(line[line.index("{") :])
        if begin <= datetime.fromisoformat(event["requestReceivedTimestamp"]) <= end:
            found.add(_request(event))
    return found


def _request(event: dict[str, Any]) -> Request:
    about = event.get("objectRef") or {"resource": urlsplit(event["requestURI"]).path}
    resource = "/".join(filter(None, [about["resource"], about.get("subresource", "")]))
    allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow"
    (pod,) = event["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [""])
    return Request(about.get("apiGroup", ""), resource, event["verb"], pod, allowed)
