"""Which object a manifest is of, whatever it is made of."""

import pytest
from elastic_pytorch_operator.informer.identity import Identity, identify, version_of
from hypothesis import given
from hypothesis import strategies as st


def test_object_is_known_by_its_names_its_uid_and_its_version() -> None:
    metadata = {"namespace": "team", "name": "lm", "uid": "u", "resourceVersion": "12345678901"}
    assert identify({"metadata": metadata}) == Identity("team", "lm", "u", 12345678901)


@pytest.mark.parametrize(
    "manifest", [None, 7, [], {}, {"metadata": []}, {"metadata": {"uid": 7, "name": None, "namespace": {}}}]
)
def test_what_is_missing_or_of_another_type_is_empty(manifest: object) -> None:
    assert identify(manifest) == Identity("", "", "", 0)


@given(version=st.text() | st.integers() | st.none() | st.sampled_from(["²", "9" * 5_000, "٣", "-1", "1.5"]))
def test_version_that_is_no_number_is_the_oldest(version: object) -> None:
    digits = isinstance(version, str) and version.isascii() and version.isdigit()
    assert version_of({"resourceVersion": version}) == (int(str(version)) if digits and len(str(version)) <= 20 else 0)
