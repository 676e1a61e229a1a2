"""The reference of the metrics, from the module that defines them."""

from elastic_pytorch_operator.metrics import Metrics

HEAD = """# Metrics

Made from `operator/elastic_pytorch_operator/metrics.py` by `make docs`. Each replica serves them in Prometheus' text format at
`:8781/metrics`, beside its probes. No label names a job: the number of series stays the same however many there are.

What is counted in the cluster, `elastic_pytorch_jobs` and `elastic_pytorch_workers`, only the replica that leads tells, and only it
reconciles, declares rounds and answers agents: a `sum` over the replicas is right for every metric but
`workqueue_adds_total`, to which a replica that stands by adds what its watches tell it. `process_*`, of the process
itself, is there beside these.

| metric | | labels | |
|---|---|---|---|
"""


def page() -> str:
    """The page of all metrics."""
    rows = []
    for family in Metrics().families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.name}` | {family.kind} | {labels} | {family.text} |\n")
    return HEAD + "".join(rows)
