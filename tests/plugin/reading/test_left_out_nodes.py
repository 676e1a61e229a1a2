"""The nodes that a job does without, as users see them."""

from dataclasses import replace

from elastic_pytorch_client.reading.diagnosis import diagnose
from elastic_pytorch_client.reading.job_view import LeftOutNode, view_job
from elastic_pytorch_client.reading.text import parse_time
from elastic_pytorch_client.views.why_view import show_why
from elastic_pytorch_operator.planning.preflight.preflight import LEFT_OUT_SECONDS
from elastic_pytorch_operator.planning.preflight.preflight import LeftOutNode as Told

from tests.operator.builders import TIME, a_manifest
from tests.plugin.plugin_console import text_of
from tests.plugin.recorded_cluster import job_of
from tests.plugin.test_diagnosis import evidence_of

WHY = "has failed its check: matrix products: no device"


def test_they_are_read_and_worded_as_the_operator_does() -> None:
    told = Told("node-1", "w1", WHY, 0.0, TIME)
    job = view_job({**a_manifest(), "status": {"leftOutNodes": [told.as_status()]}})
    assert job.left_out_nodes == (LeftOutNode("node-1", "w1", WHY, parse_time(TIME)),)
    assert str(job.left_out_nodes[0]).endswith(told.describe())
    assert view_job(a_manifest()).left_out_nodes == ()


def test_why_names_them_and_says_what_to_do() -> None:
    job = replace(job_of("young"), left_out_nodes=(LeftOutNode("node-1", "w1", WHY),))
    found = diagnose(job, evidence_of("young"))
    assert not found.well
    text = text_of(show_why(found), 400)
    assert f"Node node-1 is left out: w1 {WHY}, twice." in text
    assert f"again after {LEFT_OUT_SECONDS / 60:.0f} minutes" in text
    assert "kubectl cordon node-1" in text
