"""What is said where a bucket, its credentials or its rules do not let a training write."""

from functools import partial
from pathlib import Path

import pytest
from elastic_pytorch.object_url import ObjectUrl
from elastic_pytorch.state_format.payload import payload_chunks
from elastic_pytorch.state_format.state_version import StateVersion
from elastic_pytorch.storage.checkpoint_file import load_newest
from elastic_pytorch.storage.checkpoint_folder import by_name, claim, claimed, write
from elastic_pytorch.storage.checkpoint_format import CannotClaim
from elastic_pytorch.storage.object_errors import plain_error
from elastic_pytorch.storage.object_store import ObjectStore
from elastic_pytorch.storage.object_streams import PART_BYTES

from tests.worker_image.object_storage import Answer, Bucket, s3_error
from tests.worker_image.storage.test_object_store import FEW, NOTHING

pytestmark = [pytest.mark.torch, pytest.mark.process]

long = partial(pytest.param, marks=pytest.mark.long)


@pytest.mark.parametrize(
    "answer",
    [s3_error(400, "ExpiredToken"), long(s3_error(403, "ExpiredToken"))],
    ids=lambda answer: str(answer.status),
)
@pytest.mark.parametrize("kind", ["list", "part", "end"])
def test_an_expired_token_is_named(bucket: Bucket, answer: Answer, kind: str) -> None:
    write(bucket.url, StateVersion(1, 1), [b"x"], keep=1)
    bucket.proxy.fault = lambda request: answer if request.kind == kind else None
    with pytest.raises(
        PermissionError,
        match=f"credentials for bucket {bucket.name} have expired: renew AWS_ACCESS_KEY_ID",
    ):
        write(bucket.url, StateVersion(1, 2), [bytes(2 * PART_BYTES)], keep=1)
    bucket.proxy.fault = lambda _: None
    assert [version.step for version, _ in by_name(bucket.url)] == [1]


def test_refused_credentials_are_named(bucket: Bucket) -> None:
    bucket.proxy.fault = lambda request: (
        s3_error(403, "AccessDenied") if request.method == "PUT" else None
    )
    with pytest.raises(
        PermissionError, match=f"bucket {bucket.name} refuses these credentials: allow them to list"
    ):
        write(bucket.url, StateVersion(1, 2), payload_chunks({}), keep=1)


def test_a_bucket_that_vanishes_is_not_an_empty_folder(bucket: Bucket) -> None:
    write(bucket.url, StateVersion(1, 1), payload_chunks({}), keep=1)
    missing = s3_error(404, "NoSuchBucket", "The specified bucket does not exist")
    bucket.proxy.fault = lambda _: missing
    for action in (
        lambda: load_newest(bucket.url, NOTHING),
        lambda: claim(bucket.url, 2),
        lambda: claimed(bucket.url),
        lambda: write(bucket.url, StateVersion(1, 2), [bytes(2 * PART_BYTES)], keep=1),
    ):
        with pytest.raises(
            OSError, match=f"there is no bucket {bucket.name}: create it, or correct the URL"
        ) as raised:
            action()
        assert not isinstance(raised.value, FileNotFoundError)


def test_a_bucket_that_was_never_there(bucket: Bucket) -> None:
    with pytest.raises(OSError, match="there is no bucket missing"):
        write("s3://missing/run", StateVersion(1, 1), [b"x"], keep=1)
    with pytest.raises(OSError, match="there is no bucket missing"):
        claimed("s3://missing")


def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)


def test_missing_credentials_are_named(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_credentials(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", bucket.proxy.url)
    bucket.proxy.fault = lambda request: Answer(404) if request.path.startswith("/latest") else None
    with pytest.raises(
        PermissionError,
        match=f"no credentials for bucket {bucket.name}: give the pod AWS_ACCESS_KEY_ID",
    ):
        claimed(bucket.url)


def test_credentials_of_a_file_are_used(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_credentials(monkeypatch)
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id = OTHER\n\n[train]\naws_access_key_id = MINE\n"
        "aws_secret_access_key = s\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "train")
    claim(bucket.url, 1)
    assert all(
        "Credential=MINE/" in request.headers["authorization"] for request in bucket.proxy.requests
    )
    monkeypatch.setenv("AWS_PROFILE", "default")
    with pytest.raises(
        PermissionError, match="has no 'aws_secret_access_key' for the profile default"
    ):
        claim(bucket.url, 1)


def test_storage_that_knows_no_conditions_is_refused(bucket: Bucket) -> None:
    refusal = s3_error(501, "NotImplemented", "A header implies what is not implemented")
    bucket.proxy.fault = lambda request: refusal if "if-none-match" in request.headers else None
    with pytest.raises(
        CannotClaim,
        match=f"bucket {bucket.name} does not write on the condition that an object is absent"
        ".*use storage that does, or a folder",
    ):
        claim(ObjectStore(ObjectUrl("s3", bucket.name, "run"), FEW), 1)


def test_an_answer_of_any_length_makes_a_short_error() -> None:
    answer = Exception(f"<Code>SlowDown</Code><Message>{'x' * 10**6}</Message>")
    text = str(plain_error(answer, ObjectUrl("s3", "bucket", "run")))
    assert "bucket bucket: SlowDown: xxx" in text
    assert len(text) < 1000
