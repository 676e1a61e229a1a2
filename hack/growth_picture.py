"""Draws the steps of a training around a growth, with and without `spec.prepare`: docs/use/growth.svg.

.venv/bin/python hack/growth_picture.py          # the set-up of the script takes 60 s; five minutes
.venv/bin/python hack/growth_picture.py 10 /tmp/growth.svg

The agents are real, as in in_process_pause.py: three pods train with `in_process`, and a fourth one is started. The group is changed as
soon as it is ready.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from bench.picture import AGAIN, FAULT, GRID, INK, MUTED
from in_process_pause import Training
from matplotlib.figure import Figure

BEFORE_SECONDS, AFTER_SECONDS = 10.0, 15.0
BEFORE, PREPARED = "without prepare", "with prepare"
COLORS = {BEFORE: AGAIN, PREPARED: "#2f7d4f"}

# When rank 0 has begun steps, in seconds since the new pod was started, and how many steps that is since then.
Course = Sequence[tuple[float, int]]


def course(steps: Sequence[tuple[float, int]], began: float) -> list[tuple[float, int]]:
    """The steps around a moment.

    Args:
        steps: when rank 0 has begun which one.
        began: the moment.
    """
    first = max((number for at, number in steps if at <= began), default=0)
    return [(at - began, number - first) for at, number in steps if at >= began - BEFORE_SECONDS]


def longest_pause(steps: Course) -> tuple[float, float]:
    """The begin and the end of the longest time without a step."""
    times = pairwise(at for at, _ in steps)
    return max(times, key=lambda pause: pause[1] - pause[0], default=(0.0, 0.0))


def draw(courses: Mapping[str, Course], path: Path) -> None:
    """Writes the picture as SVG, its words as text."""
    with mpl.rc_context(
        {"font.size": 11, "text.color": INK, "axes.labelcolor": MUTED, "svg.fonttype": "none", "svg.hashsalt": "growth"}
    ):
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        axis = figure.subplots()
        end = max(longest_pause(steps)[1] for steps in courses.values()) + AFTER_SECONDS
        for name, steps in courses.items():
            shown = [step for step in steps if step[0] <= end]
            begin, goes_on = longest_pause(steps)
            axis.plot(*zip(*shown, strict=True), color=COLORS[name], linewidth=2.2)
            axis.annotate(
                f"{name}: all wait for {goes_on - begin:.1f} s",
                (goes_on, dict(shown)[goes_on]),
                xytext=(-8, 0 if name == BEFORE else 6),
                textcoords="offset points",
                ha="right",
                va="bottom",
                color=COLORS[name],
                fontweight="bold",
            )
        axis.axvline(0, color=FAULT, linewidth=1.2)
        axis.annotate(" the fourth pod starts", (0, 1), xycoords=("data", "axes fraction"), va="top", color=FAULT)
        axis.set_xlim(-BEFORE_SECONDS, end)
        axis.set_xlabel("seconds since the pod was started")
        axis.set_ylabel("steps of the job since then")
        axis.tick_params(colors=MUTED, length=0)
        axis.grid(color=GRID, linewidth=0.6)
        axis.spines[:].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")


def grow(set_up_seconds: float, *, prepare: bool) -> list[tuple[float, int]]:
    """Has real agents train, adds a pod, and returns the steps around that."""
    options = ("--backend", "gloo", "--set-up-seconds", str(set_up_seconds), "--step-seconds", "0.1", "--in-process")
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder), *options, prepare=prepare)
        try:
            time.sleep(BEFORE_SECONDS)
            began = time.time()
            training.add("w3")
            training.change("w0", "w1", "w2", "w3")
            time.sleep(AFTER_SECONDS)
            return course([(event["at"], event["step"]) for event in training.events.all(what="step", worker="w0")], began)
        finally:
            training.close()


def main(set_up_seconds: str = "60", path: str = "") -> None:
    target = Path(path) if path else Path(__file__).resolve().parents[1] / "docs" / "use" / "growth.svg"
    courses = {name: grow(float(set_up_seconds), prepare=name == PREPARED) for name in (BEFORE, PREPARED)}
    draw(courses, target)
    for name, steps in courses.items():
        begin, end = longest_pause(steps)
        print(f"{name}: the longest pause took {end - begin:.2f} s; {steps[-1][1]} steps in {steps[-1][0]:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
