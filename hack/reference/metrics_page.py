"""The reference of the metrics, from the module that defines them."""

from elastic_pytorch_operator.monitoring.metrics import Metrics

HEAD = """# Metrics

Use this reference to write queries, dashboards and alerts, and to give Prometheus access to the metrics. `make docs` writes it
from `operator/elastic_pytorch_operator/monitoring/`.

Each replica serves the metrics in Prometheus' text format at `https://…:8444/metrics`, together with `process_*` metrics. It
renders them at most once in five seconds, and scrapes in between get the same values.

Only the leader exports gauges of jobs and workers, reconciles and answers agents, so `sum()` across replicas is correct; only
`workqueue_adds_total` grows on standby replicas as well. Query the counters of jobs with `increase()` or `rate()`, because they
begin at 0 with each leader.

**Namespaces.** The label `namespace` names the namespace of the jobs, which has about 85 series until ten minutes after its
last job is deleted. The chart's ServiceMonitor and PodMonitor set `honorLabels: true`; set `honor_labels: true` in your own
scrape configuration. Prometheus otherwise renames the label to `exported_namespace`, and alerts and dashboard show the
namespace of the operator instead.

**Jobs.** `metrics.perJob: true` in the chart adds the gauges `elastic_pytorch_job_*` with the labels `namespace` and
`job_name`, which disappear with the job. They can drive an autoscaler, and
[Autoscaling](../use/scheduling.md#horizontalpodautoscaler) has a manifest for `elastic_pytorch_job_step_seconds`.

## Who may read them
By default (`metrics.secure`), a scrape needs the bearer token of a user who may `get` the nonResourceURL `/metrics`. The
Prometheus operator's own charts give Prometheus that right in the whole cluster. Otherwise name its ServiceAccount in
`metrics.readers`, or bind the cluster role `elastic-pytorch-operator-metrics-reader`.

The chart's ServiceMonitor presents the token of Prometheus' pod. It checks the certificate with `ca.crt` of the Secret
`elastic-pytorch-operator-tls` under the name of the agents' Service. A PodMonitor cannot name a file, and needs a Secret with a
token (`metrics.podMonitor.authorization`). Your own scrape configuration needs `scheme: https`, `authorization`, and
`tls_config` with `ca_file` and `server_name` (`elastic-pytorch-operator.NAMESPACE.svc`).

The operator asks the API server about each token (TokenReview, SubjectAccessReview), and caches positive decisions for a minute
and negative ones for ten seconds. While the API server does not answer, positive decisions hold for ten minutes. A scrape
without a valid token gets 401, one without the right gets 403, and an unknown token that cannot be reviewed gets 503.

With `metrics.secure: false`, any pod may read the metrics over plain HTTP on port 8781, the port of the probes.

## The metrics
| metric | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    rows = []
    for family in Metrics().families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.text} |\n")
    return HEAD + "".join(rows)
