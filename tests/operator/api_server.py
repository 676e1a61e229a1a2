"""Enough of an API server for the operator to start: lists, watches and discovery, over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

JOBS = "apis/elasticpytorch.dev/v1alpha1"
DEFINITIONS = "apis/apiextensions.k8s.io/v1"
# What discovery tells of: by the path of the group, each resource's name, its kind, and whether it
# is namespaced.
RESOURCES = {
    "api/v1": [
        ("pods", "Pod", True),
        ("nodes", "Node", False),
        ("namespaces", "Namespace", False),
        ("events", "Event", True),
    ],
    JOBS: [("elasticpytorchjobs", "ElasticPyTorchJob", True)],
    DEFINITIONS: [("customresourcedefinitions", "CustomResourceDefinition", False)],
}


class ApiServer:
    """Answers lists, watches and discovery; remembers what was listed and watched."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.watched: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.strip("/")
        if path in ("api", "apis", *RESOURCES):
            return web.json_response(discovery(path))
        if request.query.get("watch"):
            self.watched.add(path)
            stream = web.StreamResponse()
            await stream.prepare(request)
            await asyncio.sleep(60)
            return stream
        self.listed.add(path)
        namespace = path.partition("namespaces/")[2].partition("/")[0]
        items = (
            [{"metadata": {"name": path.rpartition("/")[2], "namespace": namespace}}]
            if namespace
            else []
        )
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})


def discovery(path: str) -> dict[str, Any]:
    if path == "api":
        return {"versions": ["v1"]}
    if path == "apis":
        groups = [group.split("/")[1:] for group in (JOBS, DEFINITIONS)]
        versions = [
            (name, {"groupVersion": f"{name}/{version}", "version": version})
            for name, version in groups
        ]
        return {
            "groups": [
                {"name": name, "versions": [known], "preferredVersion": known}
                for name, known in versions
            ]
        }
    return {
        "resources": [
            {
                "name": name,
                "kind": kind,
                "singularName": kind.lower(),
                "namespaced": namespaced,
                "verbs": ["list", "watch"],
            }
            for name, kind, namespaced in RESOURCES[path]
        ]
    }


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[ApiServer, str]]:
    server, app = ApiServer(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def write_kubeconfig(folder: Path, url: str) -> Path:
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path
