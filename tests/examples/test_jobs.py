"""The jobs of examples/deepspeed, torchtitan and megatron; tests/frameworks has their scripts."""

import json

import pytest
import yaml

from tests.job_schema import VALIDATOR
from tests.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    ("name", "manifest"),
    [("deepspeed", "job.yaml"), ("torchtitan", "job.yaml"), ("torchtitan", "job-units.yaml")],
)
def test_the_job_runs_the_script_with_options_it_has(name: str, manifest: str) -> None:
    job = yaml.safe_load((EXAMPLES / name / manifest).read_text())
    VALIDATOR.validate(job)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script, *arguments = container["args"]
    assert script == f"/examples/{name}/train.py"
    options = [argument for argument in arguments if argument.startswith("--")]
    assert options and all(
        f'"{option}"' in (EXAMPLES / name / "train.py").read_text() for option in options
    )


def test_the_configuration_of_deepspeed_is_one_that_can_be_resized() -> None:
    config = json.loads((EXAMPLES / "deepspeed" / "ds_config.json").read_text())
    assert config["checkpoint"] == {"load_universal": True}
    assert config["zero_optimization"]["stage"] in (1, 2, 3)
    assert "train_batch_size" not in config


@pytest.mark.parametrize(("manifest", "unit"), [("job.yaml", 1), ("job-units.yaml", 2)])
def test_the_jobs_of_torchtitan_allow_the_sizes_that_divide_the_batch(
    manifest: str, unit: int
) -> None:
    job = yaml.safe_load((EXAMPLES / "torchtitan" / manifest).read_text())["spec"]
    assert job.get("unitReplicas", 1) == unit
    sizes = range(job["minReplicas"], job["maxReplicas"] + 1, unit)
    script = (EXAMPLES / "torchtitan" / "train.py").read_text()
    assert '"--batch-size", type=int, default=24' in script
    assert '"--micro-batch-size", type=int, default=2' in script
    assert job["resizePolicy"]["allowedReplicas"] == [
        size for size in sizes if 12 % (size // unit) == 0
    ]


def test_a_unit_of_torchtitan_is_what_computes_a_sample_together() -> None:
    job = yaml.safe_load((EXAMPLES / "torchtitan" / "job-units.yaml").read_text())["spec"]
    [container] = job["template"]["spec"]["containers"]
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert container["args"][-2:] == ["--tensor-parallel", str(job["unitReplicas"] * gpus)]


def test_a_unit_of_megatron_is_a_replica_of_the_model_and_each_size_divides_the_batch() -> None:
    job = yaml.safe_load((EXAMPLES / "megatron" / "job.yaml").read_text())["spec"]
    [container] = job["template"]["spec"]["containers"]
    script, *options = container["args"]
    assert script == "pretrain_gpt.py"
    values = dict(option.removeprefix("--").partition("=")[::2] for option in options)
    replica = int(values["tensor-model-parallel-size"]) * int(
        values["pipeline-model-parallel-size"]
    )
    unit = job["unitReplicas"]
    assert unit * container["resources"]["limits"]["nvidia.com/gpu"] == replica
    assert values["save"] == values["load"]
    assert {"use-tp-pp-dp-mapping", "exit-signal-handler"} < values.keys()
    sizes = range(job["minReplicas"], job["maxReplicas"] + 1, unit)
    micro_batches = int(values["global-batch-size"]) // int(values["micro-batch-size"])
    assert job["resizePolicy"]["allowedReplicas"] == [
        size for size in sizes if micro_batches % (size // unit) == 0
    ]
