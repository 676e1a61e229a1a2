"""The resources of the API server that the operator reads, writes or watches."""

from dataclasses import dataclass

from elastic_pytorch_operator.api import gang_schedulers, kueue, names


@dataclass(frozen=True, slots=True)
class Resource:
    api_version: str
    kind: str
    plural: str
    label: str = ""  # that selects what a list has; empty: all
    of_chart: bool = False  # the chart makes the one object: the operator reads and replaces it

    def path(self, namespace: str = "", name: str = "") -> str:
        root = "/api" if "/" not in self.api_version else "/apis"
        place = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}/{self.api_version}{place}/{self.plural}" + (f"/{name}" if name else "")


JOBS = Resource(names.API_VERSION, names.KIND, names.PLURAL)
TEMPLATES = Resource(names.API_VERSION, names.TEMPLATE_KIND, f"{names.TEMPLATE_KIND.lower()}s")
# The label managed-by would not do: policies of others write it, too.
PODS = Resource("v1", "Pod", "pods", names.LABEL_ROLE)
NODES = Resource("v1", "Node", "nodes")
SERVICES = Resource("v1", "Service", "services")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
REVISIONS = Resource("apps/v1", "ControllerRevision", "controllerrevisions")
EVENTS = Resource("events.k8s.io/v1", "Event", "events")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")

WORKLOADS = Resource(
    kueue.API_VERSION, kueue.WORKLOAD, kueue.WORKLOADS, names.LABEL_WORKLOAD_NUMBER
)
RESOURCE_FLAVORS = Resource(kueue.API_VERSION, "ResourceFlavor", "resourceflavors")
WORKLOAD_PRIORITY_CLASSES = Resource(
    kueue.API_VERSION, "WorkloadPriorityClass", "workloadpriorityclasses"
)

LEASES = Resource("coordination.k8s.io/v1", "Lease", "leases", of_chart=True)
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", of_chart=True)
SECRETS = Resource("v1", "Secret", "secrets", of_chart=True)


def pod_groups(api_version: str) -> Resource:
    return Resource(api_version, gang_schedulers.KIND, gang_schedulers.PLURAL)
