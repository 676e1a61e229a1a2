from pathlib import Path

import pytest
from scale import stage
from scale.fake_nodes import LABEL, node

from tests.job_schema import VALIDATOR


def test_node_of_the_load_generator_is_where_fake_pods_are() -> None:
    ranges = ["10.244.4.0/24", "10.244.5.0/24"]
    here, there = (stage.routes(ranges, "plane", "172.18.0.3", at=node) for node in ("plane", "worker"))
    assert here == "ip route replace local 10.244.4.0/24 dev lo; ip route replace local 10.244.5.0/24 dev lo"
    assert there == "ip route replace 10.244.4.0/24 via 172.18.0.3; ip route replace 10.244.5.0/24 via 172.18.0.3"
    assert "ip route del 10.244.5.0/24 via 172.18.0.3" in stage.routes(ranges, "plane", "172.18.0.3", at="worker", verb="del")


@pytest.mark.parametrize("workers", [1, 2, 4000])
def test_job_is_elastic_and_runs_on_fake_nodes_only(workers: int) -> None:
    job = stage.job_manifest("job-7", workers)
    VALIDATOR.validate(job)
    assert job["spec"]["minReplicas"] <= job["spec"]["replicas"] == workers
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {LABEL: node("fake-0")["metadata"]["labels"][LABEL]}


def test_load_generator_gets_all_modules_that_it_imports() -> None:
    folder = Path(stage.__file__).parent
    sources = {name: (folder / f"{name}.py").read_text() for name in stage.CODE}
    imported = {line.split()[1] for text in sources.values() for line in text.splitlines() if line.startswith("from scale.")}
    assert {name.removeprefix("scale.") for name in imported} | {"__init__", "generator"} == set(stage.CODE)
    assert not [name for name, text in sources.items() if "import elastic_pytorch" in text or "from elastic_pytorch" in text]
