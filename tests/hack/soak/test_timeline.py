from soak.timeline import Group, kept_seconds


def test_time_of_steps_that_two_groups_do_again_is_kept_once() -> None:
    groups = [
        Group(1, 1, 1, 10, 1.0, 10.0),
        Group(2, 1, 8, 9, 20.0, 21.0),
        Group(3, 1, 5, 5, 30.0, 30.0),
    ]
    assert kept_seconds(groups) == 4.0, "a group of one step has no pace"
