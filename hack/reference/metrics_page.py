"""The reference of the metrics, from the module that defines them."""

from elastic_pytorch_operator.monitoring.metrics import Metrics

HEAD = """# Metrics

This page is for people who write queries, dashboards and alerts.
Made from `operator/elastic_pytorch_operator/monitoring/` by `make docs`. Each replica serves them in Prometheus' text format at
`https://…:8444/metrics`, together with `process_*` metrics. They are rendered at most once in five seconds: scrapes in between get the
same values.

Only the leader exports gauges of jobs and workers, reconciles and answers agents, so `sum()` across replicas is correct. Exception: standby
replicas also increment `workqueue_adds_total`. Counters of jobs begin at 0 with each leader: look at them with `increase()` or `rate()`.

**Namespaces.** The label `namespace` is that of the jobs. Each namespace with jobs has about 85 series; ten minutes after its last job is
deleted they are removed. The chart's ServiceMonitor and PodMonitor set `honorLabels: true`. A scrape configuration of your own needs
`honor_labels: true`; otherwise Prometheus renames the label to `exported_namespace`, and the alerts and the
dashboard show the namespace of the operator instead.

**Jobs.** `metrics.perJob: true` in the chart adds the gauges `elastic_pytorch_job_*`, with the labels `namespace` and `job_name`,
which disappear with the job. They can drive an autoscaler: [autoscaling.md](../use/autoscaling.md#horizontalpodautoscaler)
has a manifest for `elastic_pytorch_job_step_seconds`.

## Who may read them
With `metrics.secure`, the default, a scrape needs a bearer token of a user who may `get` the nonResourceURL `/metrics`. The operator
asks the API server about each token (TokenReview, SubjectAccessReview). It uses a decision that allows for a minute, and one that
refuses for ten seconds. While the API server does not answer, a decision that allows is used for ten minutes. Without a valid token
the answer is 401, and without the right 403. It is 503 if the API server cannot be asked about an unknown token.

The Prometheus operator's own charts give Prometheus that right in the whole cluster. Otherwise name its ServiceAccount in
`metrics.readers`, or bind the cluster role `elastic-pytorch-operator-metrics-reader`. The chart's ServiceMonitor shows the token of
Prometheus' pod. It checks the certificate with `ca.crt` of the Secret `elastic-pytorch-operator-tls`, under the name of the agents'
Service. A PodMonitor needs a Secret with a token (`metrics.podMonitor.authorization`), because it cannot name a file.

A scrape configuration of your own needs `scheme: https`, `authorization`, and `tls_config` with `ca_file` and `server_name`
(`elastic-pytorch-operator.NAMESPACE.svc`). With `metrics.secure: false` any pod may read the metrics, over plain HTTP on the port of the
probes, 8781.

## The metrics
| metric | type | labels | meaning |
|---|---|---|---|
"""


def page() -> str:
    """The page of all metrics."""
    rows = []
    for family in Metrics().families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.text} |\n")
    return HEAD + "".join(rows)
