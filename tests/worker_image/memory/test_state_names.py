import os
from pathlib import Path

import pytest
from elastic_pytorch.memory.state_names import Identity, StateNames


def test_states_without_a_folder_are_numbered_alike_after_a_restart() -> None:
    first, second = StateNames(), StateNames()
    made = [first.give(None, "").memory for _ in range(3)]
    assert len(set(made)) == 3
    second.give("folder", "")
    second.give(None, "critic")
    assert [second.give(None, "").memory for _ in range(3)] == made, (
        "folders and names do not count"
    )


def test_memory_and_checkpoints_are_named_after_the_same() -> None:
    names = StateNames()
    plain, named = names.give("folder", ""), names.give(Path("folder"), "critic")
    assert plain.folder == os.path.abspath("folder")  # noqa: PTH100
    assert named.folder == plain.folder + "/critic"
    assert plain.memory != named.memory
    assert names.give(None, "critic").folder == ""


@pytest.mark.parametrize(
    ("folder", "name"), [("folder", ""), ("folder", "critic"), (None, "critic")]
)
def test_second_state_of_a_name_is_refused_until_the_first_is_closed(
    folder: str | None, name: str
) -> None:
    names = StateNames()
    first = names.give(folder, name)
    with pytest.raises(
        RuntimeError, match=r"has made a State of .* already: give each training a name="
    ):
        names.give(folder, name)
    names.free(first)
    assert names.give(folder, name).memory == first.memory


def test_two_ways_to_write_a_folder_are_one() -> None:
    names = StateNames()
    names.give("folder", "critic")
    with pytest.raises(RuntimeError, match="already"):
        names.give("./folder/critic", "")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "two words", "x" * 101])
def test_names_that_are_no_folders(name: str) -> None:
    with pytest.raises(ValueError, match="a name is of letters"):
        StateNames().give("folder", name)


def memories(identities: list[Identity]) -> list[str]:
    return [each.memory for each in identities]


def test_function_that_is_called_again_makes_the_same_states() -> None:
    names = StateNames()
    outside = names.give(None, "")
    mark = names.mark()

    def function() -> list[Identity]:
        return [
            names.give(None, ""),
            names.give("folder", ""),
            names.give(None, ""),
        ]

    first = function()
    names.leave(first[0])
    names.go_back(mark)
    assert not names.left(), "what is made again is not to be given back"
    assert memories(function()) == memories(first)
    assert outside.memory not in memories(first)
    names.go_back(mark)
    names.free(outside)
    assert names.give(None, "").memory == first[0].memory


def test_state_that_is_gone_late_does_not_give_back_what_the_next_one_has() -> None:
    """As one does that an attribute keeps until the repeated function has made the next one."""
    names = StateNames()
    mark = names.mark()
    first = names.give("folder", "")
    names.go_back(mark)
    second = names.give("folder", "")
    names.leave(first)
    assert not names.left()
    names.free(first)
    with pytest.raises(RuntimeError, match="already"):
        names.give("folder", "")
    names.leave(second)
    assert names.left() == {second.memory}


def test_what_is_left_is_told_until_it_is_given_back_or_made_again() -> None:
    names = StateNames()
    first, second = names.give("one", ""), names.give("two", "")
    names.leave(first)
    names.leave(second)
    names.free(second)
    names.give("two", "")
    assert names.left() == {first.memory}
    names.forget(first.memory)
    assert not names.left()


def test_url_of_object_storage_names_a_state() -> None:
    names = StateNames()
    assert names.give("s3://bucket/run/", "").folder == "s3://bucket/run"
    assert names.give("s3://bucket/run", "big").folder == "s3://bucket/run/big"
    with pytest.raises(RuntimeError, match="s3://bucket/run already"):
        names.give("S3://bucket/run", "")
