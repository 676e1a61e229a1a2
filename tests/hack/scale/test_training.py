from scale.training import CHECKPOINT_STEPS, START_SECONDS, STEPS_PER_SECOND, Training


def test_training_goes_back_to_the_checkpoint_unless_the_change_is_orderly() -> None:
    training = Training()
    for worker in "ab":
        assert training.step(0.0) is None
        training.join(worker, 1, 2, orderly=False, now=0.0)
    later = START_SECONDS + (CHECKPOINT_STEPS + 9) / STEPS_PER_SECOND
    assert training.step(later) == CHECKPOINT_STEPS + 10
    training.leave("b", later)
    assert training.step(later + 60) == CHECKPOINT_STEPS + 10, "a waits for b in vain"
    training.join("a", 2, 1, orderly=False, now=later)
    assert training.step(later) is None, "what the round before came to is none of this round's"
    assert training.step(later + START_SECONDS) == training.first == CHECKPOINT_STEPS + 1
    training.join("a", 3, 1, orderly=True, now=later + START_SECONDS)
    assert training.first == CHECKPOINT_STEPS + 2
