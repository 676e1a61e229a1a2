"""Prometheus finds every replica of the operator, once."""

import pytest

from tests.chart.chart_rendering import needs_helm, only, pod_of, render, template


@needs_helm
@pytest.mark.parametrize(
    ("kind", "value"), [("ServiceMonitor", "serviceMonitor"), ("PodMonitor", "podMonitor")]
)
def test_prometheus_finds_every_replica(kind: str, value: str) -> None:
    token = f'metrics.{value}.authorization={{"credentials":{{"name":"a","key":"b"}}}}'
    objects = render(f"metrics.{value}.enabled=true", token)
    monitor = only(objects, kind)["spec"]
    (endpoint,) = monitor.get("endpoints") or monitor["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True, "the label namespace is the job's"
    selector = monitor["selector"]["matchLabels"]
    pod = pod_of(objects)
    (container,) = pod["spec"]["containers"]
    assert "metrics" in {port["name"] for port in container["ports"]}
    if kind == "PodMonitor":
        assert selector.items() <= pod["metadata"]["labels"].items()
        return
    chosen = [
        o
        for o in objects
        if o["kind"] == "Service" and selector.items() <= o["metadata"]["labels"].items()
    ]
    assert [service["metadata"]["name"] for service in chosen] == [
        "elastic-pytorch-operator-metrics"
    ], "not the agents' Service"
    assert chosen[0]["spec"]["selector"].items() <= pod["metadata"]["labels"].items(), (
        "those that stand by, too"
    )


@needs_helm
def test_being_scraped_twice_is_refused() -> None:
    refused = template("metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true")
    assert refused.returncode
    assert "counted twice" in refused.stderr
