from types import SimpleNamespace

import pytest
from elastic_pytorch.agent.settings import SettingsError, read_settings, read_timeouts

ENVIRON = {
    "ELASTIC_PYTORCH_OPERATOR_URL": "http://operator.system.svc:8443",
    "ELASTIC_PYTORCH_JOB_UID": "uid",
}


def test_the_environment_is_read() -> None:
    settings = read_settings(
        ENVIRON | {"ELASTIC_PYTORCH_PRELOAD": "a, b.c,", "ELASTIC_PYTORCH_GRACE_SECONDS": "30"}
    )
    assert (settings.operator_host, settings.operator_port) == ("operator.system.svc", 8443)
    assert settings.preload == ("a", "b.c")
    assert settings.store_port == 29500
    assert settings.stop_seconds == 29
    assert settings.checkpoint_path == ""
    watching = read_settings(ENVIRON | {"ELASTIC_PYTORCH_CHECKPOINT_PATH": "/checkpoints"})
    assert watching.checkpoint_path == "/checkpoints"
    assert settings.unit_replicas == 1
    assert read_settings(ENVIRON | {"ELASTIC_PYTORCH_UNIT_REPLICAS": "4"}).unit_replicas == 4


@pytest.mark.parametrize(("grace", "stop"), [("0", 0), ("1", 0.75), ("2", 1.5), ("600", 599)])
def test_the_agent_ends_within_the_grace_period(grace: str, stop: float) -> None:
    assert read_settings(ENVIRON | {"ELASTIC_PYTORCH_GRACE_SECONDS": grace}).stop_seconds == stop


@pytest.mark.parametrize("name", list(ENVIRON))
def test_what_is_missing_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({key: value for key, value in ENVIRON.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ELASTIC_PYTORCH_OPERATOR_URL", "operator:8443"),
        ("ELASTIC_PYTORCH_OPERATOR_URL", "http://operator:port"),
        ("ELASTIC_PYTORCH_GRACE_SECONDS", "soon"),
        ("ELASTIC_PYTORCH_GRACE_SECONDS", "nan"),
        ("ELASTIC_PYTORCH_GRACE_SECONDS", "-1"),
        ("ELASTIC_PYTORCH_UNIT_REPLICAS", "0"),
        ("ELASTIC_PYTORCH_UNIT_REPLICAS", "1.5"),
    ],
)
def test_what_is_malformed_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings(ENVIRON | {name: value})


@pytest.mark.parametrize(
    ("warm", "socket", "seconds"),
    [(True, "/tmp/socket", 60.0), (False, "/tmp/socket", None), (True, "", None)],
)
def test_workers_prepare_where_they_can_wait_for_their_group(
    monkeypatch: pytest.MonkeyPatch, warm: bool, socket: str, seconds: float | None
) -> None:
    monkeypatch.setenv("ELASTIC_PYTORCH_LOCAL_SOCKET", socket)
    settings = read_settings(ENVIRON | {"ELASTIC_PYTORCH_PREPARE_SECONDS": "60"})
    options = SimpleNamespace(warm=warm, shutdown_timeout=None)
    assert read_timeouts(settings, options, 0.1).prepare_seconds == seconds
