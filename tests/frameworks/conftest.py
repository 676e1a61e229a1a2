"""The agents and the scripted operator of the worker image's tests."""

from tests.worker_image.conftest import agents, events, operator

__all__ = ["agents", "events", "operator"]
