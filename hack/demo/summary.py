"""What the demo says at its end."""

from collections.abc import Sequence

from acts import Event
from rich.box import SIMPLE
from rich.table import Table
from timeline import Done


def summary_table(events: Sequence[Event]) -> Table:
    """Make a line of each change of the group: what happened, and what it cost."""
    table = Table(box=SIMPLE, title="What happened", title_justify="left", title_style="bold")
    table.add_column("event")
    table.add_column("workers")
    table.add_column("new group's first step", justify="right")
    table.add_column("pause of training", justify="right")
    table.add_column("steps lost", justify="right")
    for event in events:
        r = event.resumption
        workers = f"{r.before} -> {r.workers}"
        table.add_row(event.title, workers, f"{r.seconds:.1f} s after", f"{r.pause:.1f} s", str(r.steps_lost))
    return table


def outcome(done: Done, *, training_began: float, final_loss: float, asked_at: float) -> str:
    """Say in a sentence how it ended."""
    return (
        f"Complete after {done.step} steps: loss {final_loss:.3f}, on text it has never seen {done.validation_loss:.3f}. "
        f"It trained for {done.at - training_began:.0f} s, {done.at - asked_at:.0f} s after kubectl apply it was done."
    )


def where_to_look(job: str) -> str:
    """Say what to type after a failure."""
    return "\n".join(
        (
            "The job is left as it is (the next demo removes it). Where to look:",
            "  export KUBECONFIG=.cluster/kubeconfig PATH=$PWD/.cluster/bin:$PATH",
            f"  kubectl describe epj/{job}",
            f"  kubectl logs -l elasticpytorch.dev/job-name={job} --prefix --tail=30",
            "  kubectl logs -n elastic-pytorch-system -l elasticpytorch.dev/leader=true --tail=50",
        )
    )
