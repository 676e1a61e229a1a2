from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from elastic_pytorch_operator.api.resources import (
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    LEASES,
    NODES,
    PODS,
    SECRETS,
    TEMPLATES,
    WORKLOADS,
    pod_groups,
)
from elastic_pytorch_operator.api.write_errors import Judgement
from elastic_pytorch_operator.cluster.interface import MAX_QUOTED, ClusterError
from elastic_pytorch_operator.cluster.kubernetes_api import (
    ADMISSION_TIMEOUT_SECONDS,
    WRITE_TIMEOUT_SECONDS,
    KubernetesCluster,
)
from elastic_pytorch_operator.monitoring.metrics import Metrics
from elastic_pytorch_operator.spec.job_size import MAX_BYTES
from kubernetes.aio import client

from tests.operator.builders import a_manifest

GROUPS = pod_groups("scheduling.x-k8s.io/v1alpha1")
OF_CHART = (LEASES, ENDPOINT_SLICES, SECRETS)
POD = {"metadata": {"namespace": "team", "name": "lm-worker-0"}}


class Server:
    """Answers every request the same way.

    Remembers the queries, which types were accepted for a path, and what was created or patched:
    path, type and body.
    """

    def __init__(self) -> None:
        self.queries: list[dict[str, str]] = []
        self.accepted: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.requests: list[tuple[str, str, Any]] = []
        self.answer = web.json_response(POD)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        self.asked.append((request.method, request.path))
        self.accepted[request.path] = request.headers["Accept"]
        if request.method == "POST" and request.can_read_body:
            self.requests.append((request.path, "post", await request.json()))
        if request.method == "PATCH":
            type_ = request.content_type.removeprefix("application/").removesuffix("+json")
            self.requests.append((request.path, type_, await request.json()))
        return web.Response(
            status=self.answer.status, headers=self.answer.headers, body=self.answer.body
        )


Served = tuple[Server, KubernetesCluster]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    configuration = client.Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}")
    cluster = KubernetesCluster(configuration, Metrics().requested)
    yield server, cluster
    await cluster.close()
    await runner.cleanup()


@pytest.mark.parametrize(
    ("options", "query"),
    [
        ({}, {}),
        ({"strict": True}, {"fieldValidation": "Strict"}),
        ({"strict": True, "dry_run": True}, {"fieldValidation": "Strict", "dryRun": "All"}),
    ],
)
async def test_how_an_object_is_created(
    served: Served, options: dict[str, bool], query: dict[str, str]
) -> None:
    server, cluster = served
    await cluster.create(PODS, POD, **options)
    assert server.queries == [{**query, "timeout": "32s"}]


async def test_api_server_has_time_to_name_the_webhook_that_a_write_waits_for(
    served: Served,
) -> None:
    """A webhook has at most 30 s."""
    server, cluster = served
    object_ = {"metadata": {"name": "lm", "namespace": "team"}}
    for resource in (PODS, EVENTS, WORKLOADS, GROUPS):
        await cluster.create(resource, object_)
        await cluster.replace(resource, object_)
        await cluster.patch(resource, "team", "lm", "1", {})
        await cluster.delete(resource, "team", "lm", "uid")
    assert {query["timeout"] for query in server.queries} == {"32s"}
    assert 30 < ADMISSION_TIMEOUT_SECONDS < 34, "the API server itself gives a write up after 34 s"
    assert WRITE_TIMEOUT_SECONDS > ADMISSION_TIMEOUT_SECONDS
    server.queries.clear()
    await cluster.replace(LEASES, object_)
    await cluster.list_all(PODS)
    assert not any("timeout" in query for query in server.queries)


async def test_error_carries_what_the_status_object_says(served: Served) -> None:
    server, cluster = served
    message = 'Pod "lm-worker-0" is invalid: spec.containers[0].image: Required value'
    cause = {
        "reason": "FieldValueRequired",
        "message": "Required value",
        "field": "spec.containers[0].image",
    }
    status = {
        "kind": "Status",
        "reason": "Invalid",
        "message": message,
        "details": {"kind": "Pod", "causes": [cause]},
    }
    server.answer = web.json_response(status, status=422)
    with pytest.raises(ClusterError) as found:
        await cluster.create(PODS, POD)
    assert (found.value.code, str(found.value)) == (422, message)
    assert found.value.judgement is Judgement.MALFORMED


@pytest.mark.parametrize(
    "body",
    [
        *("too many", "[]", "[" * 100_000, '{"details": 7}'),
        '{"message": "later", "details": {"causes": [7]}}',
    ],
)
async def test_answer_that_is_no_status_object_is_an_error_too(served: Served, body: str) -> None:
    server, cluster = served
    server.answer = web.Response(status=429, text=body, headers={"Retry-After": "3"})
    with pytest.raises(ClusterError) as found:
        await cluster.create(PODS, POD)
    assert (found.value.code, found.value.retry_after_seconds) == (429, 3.0)
    assert str(found.value) == body[:MAX_QUOTED]


@pytest.mark.parametrize("body", ["<html>", "", "[]", "7", "[" * 100_000])
async def test_answer_that_is_no_object_is_an_error(served: Served, body: str) -> None:
    server, cluster = served
    server.answer = web.Response(text=body)
    with pytest.raises(ClusterError) as found:
        await cluster.list_all(PODS)
    assert found.value.judgement is Judgement.TROUBLE


@pytest.mark.parametrize("seconds", ["²", "soon", "-1", "9" * 400])
async def test_time_to_wait_that_is_no_number_is_not_waited(served: Served, seconds: str) -> None:
    server, cluster = served
    server.answer = web.Response(status=429, text="too many", headers={"Retry-After": seconds})
    with pytest.raises(ClusterError) as found:
        await cluster.list_all(PODS)
    assert found.value.retry_after_seconds == 0


@pytest.mark.parametrize(
    ("environment", "host", "proxy"),
    [
        ({}, "https://10.96.0.1:443", None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "https://api.example.com:6443", "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, "https://api.example.com:6443", None),
        (
            {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "10.96.0.1,.svc"},
            "https://10.96.0.1:443",
            None,
        ),
        (
            {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".svc"},
            "https://kubernetes.default.svc",
            None,
        ),
    ],
)
async def test_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], host: str, proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    configuration = client.Configuration(host=host)
    await KubernetesCluster(configuration, Metrics().requested).close()
    assert configuration.proxy == proxy


async def test_object_is_changed_in_the_version_that_is_known(served: Served) -> None:
    server, cluster = served
    resize = {"op": "replace", "path": "/spec/podSets/0/count", "value": 2}
    await cluster.patch(
        WORKLOADS, "team", "lm-base", "7", {"status": {"admission": None}}, "status"
    )
    await cluster.patch(WORKLOADS, "team", "lm-base", "8", {"spec": {"active": False}})
    await cluster.patch(WORKLOADS, "team", "lm-base", "9", [resize])
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/lm-base"
    assert server.requests == [
        (
            f"{path}/status",
            "merge-patch",
            {"metadata": {"resourceVersion": "7"}, "status": {"admission": None}},
        ),
        (path, "merge-patch", {"metadata": {"resourceVersion": "8"}, "spec": {"active": False}}),
        (
            path,
            "json-patch",
            [{"op": "replace", "path": "/metadata/resourceVersion", "value": "9"}, resize],
        ),
    ]


@pytest.mark.parametrize("code", [404, 409])
async def test_deletion_of_an_object_that_is_gone_is_no_error(served: Served, code: int) -> None:
    server, cluster = served
    server.answer = web.json_response({"message": "not found"}, status=code)
    assert await cluster.delete(WORKLOADS, "team", "lm-base", "uid") is None


async def test_keys_of_tokens_are_asked_for_in_the_one_form_that_they_have(served: Served) -> None:
    server, cluster = served
    server.answer = web.json_response({"issuer": "https://kubernetes.default.svc", "keys": []})
    found = await cluster.get_token_keys()
    assert (found.issuer, found.keys["keys"]) == ("https://kubernetes.default.svc", [])
    assert server.accepted == {
        "/.well-known/openid-configuration": "application/json",
        "/openid/v1/jwks": "application/jwk-set+json",  # or else 406
    }


USER = {"username": "system:serviceaccount:a:b", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}


@pytest.mark.parametrize(
    ("status", "user"),
    [
        ({"authenticated": True, "user": USER}, USER),
        ({"authenticated": True}, {}),
        ({"authenticated": False, "user": USER}, None),
        ({"authenticated": "true", "user": USER}, None),
        ({"error": "invalid bearer token"}, None),
        (None, None),
    ],
)
async def test_user_of_a_token_for_the_api_server(
    served: Served,
    status: dict[str, Any] | None,
    user: dict[str, Any] | None,
) -> None:
    server, cluster = served
    server.answer = web.json_response({"status": status})
    assert await cluster.review_user("token") == user
    ((path, _, body),) = server.requests
    assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
    assert body["spec"] == {"token": "token"}, "without an audience, it is the API server's own"


@pytest.mark.parametrize(
    ("status", "may"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({"allowed": "yes"}, False),
        ({}, False),
    ],
)
async def test_what_a_user_may_read(served: Served, status: dict[str, Any], may: bool) -> None:
    server, cluster = served
    server.answer = web.json_response({"status": status})
    assert await cluster.review_read(USER, "/metrics") is may
    ((path, _, body),) = server.requests
    assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    attributes = {"path": "/metrics", "verb": "get"}
    rest = {name: value for name, value in USER.items() if name != "username"}
    assert body["spec"] == {"user": USER["username"], **rest, "nonResourceAttributes": attributes}


async def test_answer_tells_the_time_of_the_api_server(served: Served) -> None:
    server, cluster = served
    assert cluster.server_clock.time() is None
    server.answer = web.json_response(POD, headers={"Date": "Fri, 02 Jan 2026 00:10:00 GMT"})
    await cluster.list_all(NODES)
    told = cluster.server_clock.time()
    assert told is not None
    assert told.isoformat().startswith("2026-01-02T00:1"), "it goes on from there"


async def test_where_objects_that_the_chart_renders_are_replaced(served: Served) -> None:
    server, cluster = served
    found = {"metadata": {"namespace": "system", "name": "own", "resourceVersion": "7"}}
    for resource in OF_CHART:
        await cluster.replace(resource, found)
    assert [method for method, _ in server.asked] == ["PUT"] * 3
    assert [path.rpartition("/namespaces/")[2] for _, path in server.asked] == [
        "system/leases/own",
        "system/endpointslices/own",
        "system/secrets/own",
    ]


async def test_object_of_the_chart_that_is_missing_is_told_with_a_remedy(served: Served) -> None:
    server, cluster = served
    server.answer = web.json_response({"message": 'leases "own" not found'}, status=404)
    for resource in OF_CHART:
        with pytest.raises(
            ClusterError,
            match='leases "own" not found; the chart makes it: install or upgrade the chart again',
        ) as error:
            await cluster.get(resource, "system", "own")
        assert error.value.code == 404


async def test_where_a_template_is_read(served: Served) -> None:
    server, cluster = served
    await cluster.get(TEMPLATES, "", "gpu-8")
    assert server.asked == [
        ("GET", "/apis/elasticpytorch.dev/v1alpha1/clusterelasticpytorchjobtemplates/gpu-8")
    ]


async def test_of_a_list_no_more_than_is_read_by_plans_is_kept(served: Served) -> None:
    server, cluster = served
    server.answer = web.json_response(
        {"items": [a_manifest("large", image="x" * MAX_BYTES), a_manifest()]}
    )
    large, small = await cluster.list_all(JOBS)
    assert (large["spec"], small["spec"]) == ({"replicas": 3}, a_manifest()["spec"])
    server.answer = web.json_response(
        {"items": [{"metadata": {"name": "a"}, "spec": {"containers": [{"image": "x"}] * 1000}}]}
    )
    (pod,) = await cluster.list_all(PODS)
    assert server.queries[-1]["labelSelector"] == "elasticpytorch.dev/role"
    assert pod["spec"] == {"initContainers": []}
    pods = {"count": 2, "template": {"spec": {}}}
    server.answer = web.json_response(
        {"items": [{"metadata": {"name": "a"}, "spec": {"queueName": "q", "podSets": [pods]}}]}
    )
    (workload,) = await cluster.list_all(WORKLOADS)
    assert workload["spec"] == {"queueName": "q", "podSets": [{"count": 2}]}
