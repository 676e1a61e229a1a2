"""What the provenance of a release says."""

import hashlib
from pathlib import Path

import provenance

DIGEST = "0" * 64


def test_subjects_are_all_files_and_the_images(tmp_path: Path) -> None:
    reference = f"registry.example.com:5000/ml/agent:0.3.0@sha256:{DIGEST}"
    (tmp_path / "images.txt").write_text(f"{reference}\n")
    (tmp_path / "a.whl").write_bytes(b"a")
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert provenance.subjects_of(tmp_path) == {**files, "registry.example.com:5000/ml/agent:0.3.0": DIGEST}


def test_statement_names_the_commit_the_parameters_and_each_base_image_once() -> None:
    base = ("debian:bookworm-slim", f"sha256:{DIGEST}")
    said = provenance.statement({"b": "2", "a": "1"}, {"VERSION": "0.3.0"}, "c0ffee", [base, base])
    assert said["subject"] == [{"name": "a", "digest": {"sha256": "1"}}, {"name": "b", "digest": {"sha256": "2"}}]
    definition = said["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"VERSION": "0.3.0"}
    source, *bases = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c0ffee"}
    assert bases == [{"name": "debian:bookworm-slim", "digest": {"sha256": DIGEST}}]
