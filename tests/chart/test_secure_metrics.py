"""Metrics over TLS for clients with the right: what the chart gives to each side."""

import pytest
from elastic_pytorch_operator.monitoring.scrape_access import PATH
from elastic_pytorch_operator.tls.secret import BUNDLE_KEY, SECRET_NAME

from tests.chart.chart_rendering import Object, container_of, needs_helm, only, render, template

READER = "elastic-pytorch-operator-metrics-reader"
TOKEN = 'metrics.podMonitor.authorization={"credentials":{"name":"prometheus","key":"token"}}'
PLAIN = "metrics.secure=false"


def endpoint(kind: str, *settings: str) -> Object:
    value = {"ServiceMonitor": "serviceMonitor", "PodMonitor": "podMonitor"}[kind]
    spec = only(render(f"metrics.{value}.enabled=true", *settings), kind)["spec"]
    found: Object
    (found,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    return found


@needs_helm
def test_monitor_checks_the_operators_certificate_and_shows_a_token() -> None:
    url = next(a for a in container_of(render())["args"] if a.startswith("--url="))
    tls = {
        "ca": {"secret": {"name": SECRET_NAME, "key": BUNDLE_KEY}},
        "serverName": url.split("/")[2].partition(":")[0],
    }
    service = endpoint("ServiceMonitor")
    assert (service["scheme"], service["tlsConfig"]) == ("https", tls)
    assert service["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    pod = endpoint("PodMonitor", TOKEN)
    assert (pod["scheme"], pod["tlsConfig"]) == ("https", tls)
    assert pod["authorization"] == {"credentials": {"name": "prometheus", "key": "token"}}


@needs_helm
def test_monitor_may_be_told_otherwise() -> None:
    told = endpoint(
        "ServiceMonitor",
        'metrics.serviceMonitor.tlsConfig={"insecureSkipVerify":true}',
        'metrics.serviceMonitor.authorization={"credentials":{"name":"a","key":"b"}}',
        'metrics.serviceMonitor.scrapeTimeout="9s"',
        'metrics.serviceMonitor.relabelings=[{"targetLabel":"cluster","replacement":"a"}]',
        'metrics.serviceMonitor.metricRelabelings=[{"regex":"process_.*","action":"drop"}]',
    )
    assert told["tlsConfig"] == {"insecureSkipVerify": True}
    assert told["authorization"] == {"credentials": {"name": "a", "key": "b"}}
    assert "bearerTokenFile" not in told, "which goes together with no other authorization"
    assert told["scrapeTimeout"] == "9s"
    assert told["relabelings"] == [{"targetLabel": "cluster", "replacement": "a"}]
    assert told["metricRelabelings"] == [{"regex": "process_.*", "action": "drop"}]


@needs_helm
def test_pod_monitor_without_a_token_is_refused() -> None:
    refused = template("metrics.podMonitor.enabled=true")
    assert refused.returncode
    assert "metrics.podMonitor.authorization names no Secret" in refused.stderr


@needs_helm
@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
def test_plain_metrics_need_neither_certificate_nor_token(kind: str) -> None:
    assert set(endpoint(kind, PLAIN)) == {"port", "path", "interval", "honorLabels"}


@needs_helm
def test_service_leads_prometheus_to_the_port_of_the_metrics() -> None:
    for settings, port, protocol in (((), 8444, "https"), ((PLAIN,), 8781, "http")):
        objects = render("metrics.serviceMonitor.enabled=true", *settings)
        (found,) = only(objects, "Service", "elastic-pytorch-operator-metrics")["spec"]["ports"]
        assert found == {
            "name": "metrics",
            "port": port,
            "targetPort": "metrics",
            "appProtocol": protocol,
        }
        assert {"name": "metrics", "containerPort": port} in container_of(objects)["ports"]
        assert (f"--metrics-port={port}" in container_of(objects)["args"]) == (port == 8444)


@needs_helm
def test_role_of_readers_allows_the_metrics_only_and_is_bound_to_those_whom_the_values_name() -> (
    None
):
    objects = render('metrics.readers=[{"name":"prometheus","namespace":"monitoring"}]')
    assert only(objects, "ClusterRole", READER)["rules"] == [
        {"nonResourceURLs": [PATH], "verbs": ["get"]}
    ]
    binding = only(objects, "ClusterRoleBinding", READER)
    assert binding["roleRef"]["name"] == READER
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}
    ]
    assert READER not in {o["metadata"]["name"] for o in render(PLAIN)}


@needs_helm
def test_network_policy_admits_prometheus_to_the_port_of_the_metrics_only() -> None:
    objects = render("networkPolicy.enabled=true", 'networkPolicy.metricsFrom=[{"podSelector":{}}]')
    assert only(objects, "NetworkPolicy")["spec"]["ingress"][1]["ports"] == [{"port": "metrics"}]
