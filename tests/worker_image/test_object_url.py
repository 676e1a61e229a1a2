from pathlib import Path

import pytest
from elastic_pytorch.object_url import ObjectUrl, location_of


@pytest.mark.parametrize(
    ("given", "found", "text"),
    [
        ("s3://bucket", ObjectUrl("s3", "bucket", ""), "s3://bucket"),
        ("s3://bucket/", ObjectUrl("s3", "bucket", ""), "s3://bucket"),
        (
            "S3://bucket/runs/a=1,b",
            ObjectUrl("s3", "bucket", "runs/a=1,b"),
            "s3://bucket/runs/a=1,b",
        ),
        ("gs://my.bucket_1/run/", ObjectUrl("gs", "my.bucket_1", "run"), "gs://my.bucket_1/run"),
        ("runs/s3", Path("runs/s3"), "runs/s3"),
        ("data:b", Path("data:b"), "data:b"),
        ("./s3:/x", Path("s3:/x"), "s3:/x"),
        (Path("/data/run"), Path("/data/run"), "/data/run"),
    ],
)
def test_what_a_path_or_a_url_means(given: str | Path, found: object, text: str) -> None:
    assert location_of(given) == found
    assert str(found) == text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("file:///data", "a URL is not a folder"),
        ("az+x://a", "a URL is not a folder"),
        (Path("https://host/a"), "a URL is not a folder"),
        ("az://container/run", "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX"),
        (
            Path("s3://bucket/run"),
            "a Path merges the slashes of a URL: give it as text, s3://bucket/run",
        ),
        ("s3://", "'' cannot be the name of a bucket"),
        ("s3:///run", "'' cannot be the name of a bucket"),
        ("s3://bucket/a//b", "'' cannot be a part of a prefix"),
        ("s3://bucket/../b", "'..' cannot be a part of a prefix"),
        ("s3://bucket/a b", "'a b' cannot be a part of a prefix"),
        ("s3://bucket/a\n", "cannot be a part of a prefix"),
        ("s3://bucket/run?endpoint=http://host", "belong in the pod's environment"),
        ("s3://host:9000/bucket", "belong in the pod's environment"),
    ],
)
def test_what_is_refused(given: str | Path, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        location_of(given)
    assert words in str(refused.value)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(
        ValueError, match="credentials and endpoints belong in the pod's environment"
    ) as refused:
        location_of("s3://AKIA:hidden@bucket/run")
    assert "hidden" not in str(refused.value)
    assert "AKIA" not in str(refused.value)


def test_parts_of_a_url() -> None:
    folder = ObjectUrl("s3", "bucket", "run")
    assert (folder / "file").name == "file"
    assert (folder / "file").parent == folder
    assert str(folder.parent / "file") == "s3://bucket/file"
    assert folder / "" == folder
