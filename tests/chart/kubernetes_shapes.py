"""The shapes of Kubernetes' objects, by the models of the official client."""

from typing import Any

import jsonschema
import pydantic
from kubernetes.client import models

# The Prometheus operator's objects, as far as the chart makes use of them.
_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_SELECTOR = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"matchLabels": _STRINGS},
}
_ENDPOINT: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["port"],
    "properties": {
        name: {"type": "string"} for name in ("port", "path", "interval", "scrapeTimeout", "scheme")
    }
    | {name: {"type": "object"} for name in ("tlsConfig", "authorization")}
    | {
        name: {"type": "array", "items": {"type": "object"}}
        for name in ("relabelings", "metricRelabelings")
    }
    | {"honorLabels": {"type": "boolean"}},
}
_RULE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["alert", "expr"],
    "properties": {name: {"type": "string"} for name in ("alert", "expr", "for")}
    | {"labels": _STRINGS, "annotations": _STRINGS},
}
_GROUP = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "rules": {"type": "array", "items": _RULE}},
}


def _monitor(endpoints: str) -> dict[str, Any]:
    endpoint = _ENDPOINT
    if endpoints == "endpoints":  # a PodMonitor may not name a file
        endpoint = {
            **_ENDPOINT,
            "properties": {**_ENDPOINT["properties"], "bearerTokenFile": {"type": "string"}},
        }
    properties = {
        "selector": _SELECTOR,
        endpoints: {"type": "array", "minItems": 1, "items": endpoint},
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["selector"],
        "properties": properties,
    }


_PROMETHEUS = {
    "ServiceMonitor": _monitor("endpoints"),
    "PodMonitor": _monitor("podMetricsEndpoints"),
    "PrometheusRule": {
        "type": "object",
        "additionalProperties": False,
        "properties": {"groups": {"type": "array", "items": _GROUP}},
    },
}


def problems_of(manifest: dict[str, Any]) -> list[str]:
    """What an API server with strict validation would find wrong with the shape of an object.

    Args:
        manifest: the object, as read from YAML.

    Returns:
        A line for each problem, with the path of the field.
    """
    kind, group = manifest["kind"], manifest["apiVersion"].partition("/")[0]
    if group == "monitoring.coreos.com":
        validator = jsonschema.Draft7Validator(_PROMETHEUS[kind])
        return [
            f"{kind}: {error.json_path}: {error.message}"
            for error in validator.iter_errors(manifest["spec"])
        ]
    model = getattr(models, f"{manifest['apiVersion'].rpartition('/')[2].capitalize()}{kind}")
    try:
        model.model_validate(manifest, by_alias=True, by_name=False)
    except pydantic.ValidationError as error:
        return [
            f"{kind}.{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()
        ]
    return []
