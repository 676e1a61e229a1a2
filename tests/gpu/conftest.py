from tests.worker_image.conftest import agents, events, operator

__all__ = ["agents", "events", "operator"]
