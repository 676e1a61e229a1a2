from pathlib import Path

import pytest
import yaml
from elastic_pytorch_local.run import read_job, run_local
from elastic_pytorch_operator.spec.fields import InvalidJob

from tests.operator.builders import a_manifest


async def test_local_mode_asks_for_the_number_of_workers_as_the_api_server_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(a_manifest(replicas=None)))
    assert await run_local([path]) == 2
    assert "spec.replicas: set the number of workers" in capsys.readouterr().err
    assert await run_local([tmp_path / "none.py"]) == 2
    assert "none.py: [Errno 2] No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("train.py", "train"),
        ("My_Nano GPT.py", "my-nano-gpt"),
        ("3d.py", "job-3d"),
        ("__main__.py", "main"),
        ("\u00e9.py", "job"),
    ],
)
def test_bare_script_is_an_elastic_job_with_its_arguments(
    tmp_path: Path, file: str, name: str
) -> None:
    script = tmp_path / file
    script.touch()
    documents, _ = read_job([script], arguments=["--lr", "3"], workers=2)
    spec = documents.job["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert (documents.job["metadata"]["name"], container["args"]) == (
        name,
        [str(script), "--lr", "3"],
    )
    assert (spec["replicas"], spec["minReplicas"], spec["maxReplicas"]) == (2, 1, 3)


def test_workers_and_arguments_of_the_command_line_are_over_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(a_manifest(replicas=2, minReplicas=1, maxReplicas=4)))
    documents, _ = read_job([path], arguments=["--lr", "3"], workers=3)
    [container] = documents.job["spec"]["template"]["spec"]["containers"]
    assert (documents.job["spec"]["replicas"], container["args"][-2:]) == (3, ["--lr", "3"])
    with pytest.raises(InvalidJob, match="maxReplicas"):
        read_job([path], workers=9)


def test_number_of_workers_that_no_job_may_have_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    for workers in (0, -1):
        with pytest.raises(InvalidJob, match="replicas"):
            read_job([script], workers=workers)


async def test_file_that_is_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\x7fELF\xff")
    assert await run_local([path]) == 2
    assert "job.yaml: 'utf-8' codec can't decode" in capsys.readouterr().err
