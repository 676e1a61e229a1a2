"""The jobs of examples/deepspeed and examples/torchtitan; tests/frameworks has what their scripts do."""

import json

import pytest
import yaml

from tests.job_schema import VALIDATOR
from tests.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize("name", ["deepspeed", "torchtitan"])
def test_the_job_runs_the_script_with_options_it_has(name: str) -> None:
    job = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())
    VALIDATOR.validate(job)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script, *arguments = container["args"]
    assert script == f"/examples/{name}/train.py"
    options = [argument for argument in arguments if argument.startswith("--")]
    assert options and all(f'"{option}"' in (EXAMPLES / name / "train.py").read_text() for option in options)


def test_the_configuration_of_deepspeed_is_one_that_can_be_resized() -> None:
    config = json.loads((EXAMPLES / "deepspeed" / "ds_config.json").read_text())
    assert config["checkpoint"] == {"load_universal": True}
    assert config["zero_optimization"]["stage"] in (1, 2, 3)
    assert "train_batch_size" not in config


def test_the_job_of_torchtitan_allows_the_sizes_that_divide_the_batch() -> None:
    job = yaml.safe_load((EXAMPLES / "torchtitan" / "job.yaml").read_text())["spec"]
    sizes = range(job["minReplicas"], job["maxReplicas"] + 1)
    script = (EXAMPLES / "torchtitan" / "train.py").read_text()
    assert '"--batch-size", type=int, default=24' in script
    assert '"--micro-batch-size", type=int, default=2' in script
    assert job["resizePolicy"]["allowedReplicas"] == [size for size in sizes if 12 % size == 0]
