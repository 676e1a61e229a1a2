"""Whose tokens the operator takes, judged by the real API server."""

import base64
import json
import re

import pytest
from measure.kind_cluster import OPERATOR_NAMESPACE

from tests.e2e.job_under_test import (
    ENDLESS,
    JobUnderTest,
    StartJob,
    ask_operator,
    leading_operator,
    run_kubectl,
)
from tests.waiting import until

pytestmark = pytest.mark.e2e

AUDIENCE = "elastic-pytorch-operator"

# Opens a stream with each token that it is given, and ends it without a word; prints the status.
ASK = """
import json, os, ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context(cadata=os.environ["ELASTIC_PYTORCH_OPERATOR_AUTHORITIES"])
for token in json.load(sys.stdin):
    url = os.environ["ELASTIC_PYTORCH_OPERATOR_URL"] + "/v1/agent"
    request = urllib.request.Request(url, data=b"", headers={"Authorization": "Bearer " + token})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            print(answer.status)
    except urllib.error.HTTPError as refusal:
        print(refusal.code)
"""


def token(namespace: str, audience: str = AUDIENCE, pod: str = "", account: str = "default") -> str:
    bound = ["--bound-object-kind=Pod", f"--bound-object-name={pod}"] if pod else []
    return run_kubectl(
        "-n", namespace, "create", "token", account, f"--audience={audience}", *bound
    ).stdout.strip()


def ask(job: JobUnderTest, *tokens: str) -> list[str]:
    """What the operator answers, asked from a worker of a job."""
    pod = job.members()[0]
    command = ["-n", job.namespace, "exec", "-i", pod, "--", "python3", "-c", ASK]
    return run_kubectl(*command, input=json.dumps(tokens)).stdout.splitlines()


def test_only_a_workers_own_token_is_taken(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, replicas=2)
    job.until_world(2)
    mine, other = job.members()
    operator = leading_operator()["metadata"]["name"]
    valid = token(job.namespace, pod=mine)
    header, claims, signature = valid.split(".")
    answers = ask(
        job,
        valid,
        token(job.namespace, pod=other),
        token(job.namespace, audience="https://kubernetes.default.svc", pod=mine),
        token(job.namespace),
        token(OPERATOR_NAMESPACE, pod=operator, account="elastic-pytorch-operator"),
        f"{header}.{claims}.{signature[::-1]}",
        "forged",
    )
    assert answers == [
        "200",
        "200",  # a token speaks for its own pod, from wherever it is shown
        "401",  # for another audience
        "401",  # of no pod
        "403",  # of a pod that is no worker
        "401",  # with another signature
        "401",
    ]


def test_new_agents_are_known_by_their_tokens_signatures(start_job: StartJob) -> None:
    start_job(args=ENDLESS, replicas=1).until_world(1)
    until(
        lambda: tokens_known_by_their_signatures() >= 1,
        "the metric of signatures, which may be some seconds old",
    )


def tokens_known_by_their_signatures() -> float:
    metrics = ask_operator(leading_operator()["metadata"]["name"], "metrics")
    found = re.search(
        r'^elastic_pytorch_token_reviews_total{result="signature"} (.*)$', metrics, re.MULTILINE
    )
    return float(found[1]) if found else 0.0


@pytest.mark.long
def test_operator_shows_a_certificate_that_nobody_else_vouches_for(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, replicas=1)
    job.until_world(1)
    [pod] = job.members()
    ask_anybody = (
        "import os, urllib.request; "
        "urllib.request.urlopen(os.environ['ELASTIC_PYTORCH_OPERATOR_URL'])"
    )
    done = run_kubectl(
        "-n", job.namespace, "exec", pod, "--", "python3", "-c", ask_anybody, check=False
    )
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    plain = ask_anybody.replace("urlopen(", "urlopen('http' + ").replace("_URL']", "_URL'][5:]")
    assert done.returncode
    assert run_kubectl(
        "-n", job.namespace, "exec", pod, "--", "python3", "-c", plain, check=False
    ).returncode, "nor in the clear"
    secret = run_kubectl(
        "-n", OPERATOR_NAMESPACE, "get", "secret", "elastic-pytorch-operator-tls", "-o", "json"
    ).stdout
    bundle = base64.b64decode(json.loads(secret)["data"]["ca.crt"]).decode()
    [container] = job.pods()[0]["spec"]["containers"]
    given = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert given["ELASTIC_PYTORCH_OPERATOR_AUTHORITIES"] == bundle


@pytest.mark.long
def test_token_of_a_worker_that_is_gone_is_refused(start_job: StartJob) -> None:
    job = start_job(args=ENDLESS, replicas=2)
    job.until_world(2)
    _, gone = job.members()
    shown = token(job.namespace, pod=gone)
    job.kubectl("delete", "pod", gone, "--grace-period=0", "--force")
    job.until_replaced(gone, 2)
    assert ask(job, shown)[0] in ("401", "403")
