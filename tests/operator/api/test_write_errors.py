import pytest
from elastic_pytorch_operator.api.write_errors import Judgement, judge
from elastic_pytorch_operator.cluster.interface import ClusterError

REQUIRED = "spec.containers[0].image"

# What the API server's own decoder and validation say (apiserver rest.go, apimachinery errors.go
# and field/errors.go).
MALFORMED = [
    (
        400,
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].resource"',
        (),
    ),
    (
        422,
        'Pod "lm-worker-0-x7k2p" is invalid: spec.containers[0].image: Required value',
        (REQUIRED,),
    ),
]

REFUSED = [
    # A webhook that names no code: 400 (webhook/errors/statuserror.go). Kyverno and Gatekeeper, as
    # their users report them.
    (
        400,
        'admission webhook "validate.kyverno.svc-fail" denied the request: \n\n'
        "resource Pod/default/lm-worker-1 was blocked due to the "
        "following policies \n\nrequire-labels:\n  check-for-labels: 'validation error: "
        "label ''team'' is required.'",
        (),
    ),
    (
        403,
        'admission webhook "validation.gatekeeper.sh" denied the request: '
        "[denied by workloads-require-owner] All workloads must have "
        "a valid `owner` label",
        (),
    ),
    # A webhook may answer with what looks like the API server's own validation, and with any code.
    (
        422,
        'admission webhook "vpod.kb.io" denied the request: Pod "lm-worker-0" is invalid: '
        "spec.nodeSelector: Forbidden",
        (REQUIRED,),
    ),
    (409, 'admission webhook "vpod.kb.io" denied the request: not now', ()),
    # policy/validating/dispatcher.go: 422 unless the policy says otherwise; its cause names no
    # field.
    (
        422,
        "pods \"lm-worker-1-x7k2p\" is forbidden: ValidatingAdmissionPolicy 'no-replacements' "
        "with binding 'no-replacements' denied "
        "request: failed expression: object.metadata.labels.team == 'a'",
        ("",),
    ),
    (
        413,
        "pods \"lm\" is forbidden: ValidatingAdmissionPolicy 'small-pods' with binding 'b' "
        "denied request: too many containers",
        ("",),
    ),
    # Plugins of the API server's own.
    (
        403,
        'pods "lm-worker-0" is forbidden: exceeded quota: team, requested: requests.cpu=1, used: '
        "requests.cpu=4, limited: requests.cpu=4",
        (),
    ),
    # A webhook that fails closed and cannot be asked.
    (
        500,
        'Internal error occurred: failed calling webhook "sidecar.example.com": '
        "failed to call webhook: Post "
        '"https://injector.mesh.svc:443/inject?timeout=10s": service "injector" not found',
        (),
    ),
    # A webhook that is too slow, if the request lasts longer than the webhook may take (API server
    # 1.34).
    (
        500,
        'Internal error occurred: failed calling webhook "thirty.example.com": '
        "failed to call webhook: Post "
        '"https://127.0.0.1:19443/x?timeout=30s": context deadline exceeded',
        ("",),
    ),
    # Any code, too: this one is no request of the API server to wait.
    (429, 'admission webhook "w.example.com" denied the request: not so fast', ()),
    # What is not known to be the pod's fault never ends a job.
    (422, "something that a later API server says", ()),
]

TROUBLE = [
    (0, "no answer from the API server: TimeoutError", ()),
    (404, 'namespaces "team" not found', ()),
    (
        409,
        'Operation cannot be fulfilled on resourcequotas "team": the object has been modified; '
        "please apply your changes to the latest "
        "version and try again",
        (),
    ),
    (429, "the server has received too many requests and has asked us to try again later", ()),
    (500, "etcdserver: request timed out", ()),
    (
        504,
        "Timeout: request did not complete within requested timeout - context deadline exceeded",
        (),
    ),
]


@pytest.mark.parametrize(
    ("code", "message", "fields", "expected"),
    [
        (*answer, judgement)
        for answers, judgement in (
            (MALFORMED, Judgement.MALFORMED),
            (REFUSED, Judgement.REFUSED),
            (TROUBLE, Judgement.TROUBLE),
        )
        for answer in answers
    ],
    ids=lambda value: value[:60].replace(" ", "-") if isinstance(value, str) else None,
)
def test_what_an_answer_means(
    code: int, message: str, fields: tuple[str, ...], expected: Judgement
) -> None:
    assert judge(code, message, fields) is expected


def test_what_is_told_of_an_error() -> None:
    assert ClusterError(403, "exceeded quota").words == "the API server refuses: exceeded quota"
    assert (
        ClusterError(500, "etcdserver: no leader").words
        == "the API server fails: etcdserver: no leader"
    )
