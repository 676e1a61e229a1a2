"""The jobs of the examples: each runs its script, and allows the sizes that it can have."""

import json

import pytest
import yaml

from tests.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    ("manifest", "script"),
    [
        ("char-lm/job.yaml", "train.py"),
        ("char-lm/job-elastic.yaml", "train_elastic.py"),
        ("char-lm/job-fsdp2.yaml", "train_fsdp2.py"),
        ("char-lm/job-gpu.yaml", "train_gpu.py"),
        ("deepspeed/job.yaml", "train.py"),
        ("lightning/job.yaml", "train.py"),
        ("torchtitan/job.yaml", "train.py"),
        ("torchtitan/job-units.yaml", "train.py"),
    ],
)
def test_the_job_runs_the_script_with_options_it_has(manifest: str, script: str) -> None:
    job = yaml.safe_load((EXAMPLES / manifest).read_text())
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    path, *arguments = container["args"]
    example, _, _ = manifest.partition("/")
    assert path == f"/examples/{example}/{script}"
    source = (EXAMPLES / example / script).read_text()
    options = [argument for argument in arguments if argument.startswith("--")]
    assert all(f'"{option}"' in source for option in options)
    for constraint in pod.get("topologySpreadConstraints", []):
        selector = constraint["labelSelector"]["matchLabels"]
        assert selector == {"elasticpytorch.dev/job-name": job["metadata"]["name"]}


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
    tensors, stages = (int(values[f"{by}-model-parallel-size"]) for by in ("tensor", "pipeline"))
    unit = job["unitReplicas"]
    assert unit * container["resources"]["limits"]["nvidia.com/gpu"] == tensors * stages
    assert values["save"] == values["load"]
    assert {"use-tp-pp-dp-mapping", "exit-signal-handler"} < values.keys()
    sizes = range(job["minReplicas"], job["maxReplicas"] + 1, unit)
    micro_batches = int(values["global-batch-size"]) // int(values["micro-batch-size"])
    assert job["resizePolicy"]["allowedReplicas"] == [
        size for size in sizes if micro_batches % (size // unit) == 0
    ]
