from types import ModuleType

import elastic_pytorch as elastic
import pytest

from tests.worker_image.warm_python import run_python

pytestmark = pytest.mark.torch

GROUP = {
    "RANK": "1",
    "WORLD_SIZE": "6",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "0",
}


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, {}),
        ({"RANK": "0", "WORLD_SIZE": "1"}, {"devices": 1, "num_nodes": 1}),
        (GROUP, {"devices": 2, "num_nodes": 3}),
        (GROUP | {"WORLD_SIZE": "2"}, {"devices": 2, "num_nodes": 1}),
    ],
)
def test_size_of_the_group_comes_from_the_environment(
    small: ModuleType, environment: dict[str, str], size: dict[str, int]
) -> None:
    from elastic_pytorch.lightning.trainer_options import group_size

    assert group_size(environment) == size


def test_scripts_own_callbacks_and_plugins_are_kept(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in GROUP.items():
        monkeypatch.setenv(name, value)
    arguments = elastic.lightning.options(None, batch_size=6, callbacks=1, plugins=[2])
    assert isinstance(arguments["callbacks"][0], elastic.lightning.ElasticCallback)
    assert isinstance(arguments["plugins"][0], elastic.lightning.ElasticEnvironment)
    assert (arguments["callbacks"][1:], arguments["plugins"][1:]) == ([1], [2])


def test_alone_lightning_chooses_devices_itself(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert list(elastic.lightning.options(None, batch_size=6, callbacks=None)) == ["callbacks"]


def test_environment_names_what_is_written_into_the_script(
    small: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "6")
    environment = elastic.lightning.ElasticEnvironment()
    environment.validate_settings(num_devices=2, num_nodes=3)
    with pytest.raises(
        ValueError,
        match=r"num_nodes=2, but the group has 6 ranks: .*leave devices and num_nodes to",
    ):
        environment.validate_settings(num_devices=2, num_nodes=2)


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("import elastic_pytorch", set()),
        ("import elastic_pytorch as elastic; elastic.lightning.options(None)", {"lightning"}),
        pytest.param(
            "import pytorch_lightning, elastic_pytorch as elastic; elastic.lightning.options(None)",
            {"pytorch_lightning"},
            marks=pytest.mark.long,
        ),
    ],
)
def test_lightning_is_imported_when_asked_for_by_the_name_that_the_script_uses(
    small: ModuleType, code: str, wanted: set[str]
) -> None:
    if "pytorch_lightning" in code:
        pytest.importorskip("pytorch_lightning")
    loaded = (
        f"{code}; import sys; print(*({{'lightning', 'pytorch_lightning'}} & set(sys.modules)))"
    )
    done = run_python(loaded)
    assert (done.returncode, set(done.stdout.split())) == (0, wanted), done.stderr
