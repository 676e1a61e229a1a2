import json
import sys

import pytest
from elastic_pytorch_operator.informer.cache import Cache
from elastic_pytorch_operator.runtime.run import JSON_LEVELS, allow_deep_json
from elastic_pytorch_operator.spec.job import Job, JobKey

from tests.operator.builders import KEY, a_manifest


@pytest.mark.parametrize(("opens", "closes"), [('{"x": ', "}"), ("[", "]")])
def test_job_with_as_many_levels_as_the_api_server_reads_stops_no_other(opens: str, closes: str) -> None:
    deep = a_manifest("deep", template={"spec": {"containers": [{"name": "pytorch", "x": "HERE"}]}})
    levels = JSON_LEVELS - 20
    text = json.dumps([deep, a_manifest()]).replace('"HERE"', f"{opens * levels}1{closes * levels}")
    limit, cache = sys.getrecursionlimit(), Cache()
    try:
        allow_deep_json()
        cache.replace_all(json.loads(text), [], [], 1.0)
    finally:
        sys.setrecursionlimit(limit)
    deep_job, other = cache.job(JobKey("default", "deep")), cache.job(KEY)
    assert isinstance(deep_job, Job)
    assert isinstance(other, Job)
    assert (deep_job.problem.split(":")[0], other.problem) == ("spec.template", "")
