import math
from pathlib import Path

import pytest
from elastic_pytorch_operator.runtime.gauges import memory_limit_bytes


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "536870912\n", 536870912),
        ("memory.max", "max\n", math.inf),
        ("memory/memory.limit_in_bytes", "536870912\n", 536870912),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", math.inf),
        ("another", "1", math.inf),
    ],
)
def test_limit_is_what_the_cgroup_says(tmp_path: Path, name: str, text: str, limit: float) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    assert memory_limit_bytes(tmp_path) == limit
