"""`kubectl epj top [NAME]`: jobs, alive."""

import argparse

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from elastic_pytorch_client.job_cache import JobCache
from elastic_pytorch_client.verbs.context import Context, job_name
from elastic_pytorch_client.views.status_view import show_status
from elastic_pytorch_client.views.top_view import SparklineSamples, show_top

NAME, HELP = "top", "progress, loss and speed of jobs, refreshed until Ctrl-C"
REFRESH_SECONDS = 0.5
EVENTS_EVERY = 6  # refreshes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's options."""
    parser.add_argument("name", metavar="NAME", nargs="?", type=job_name, help="one job, with its workers and its events")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")
    parser.add_argument("--once", action="store_true", help="print once and end, as without a terminal")


def run(context: Context, options: argparse.Namespace) -> int:
    """Shows them until the user has had enough, or the only job is gone."""
    namespace = context.one_namespace if options.name else context.namespace
    cache = JobCache(context.cluster, namespace, options.name)
    screen = _Screen(context, cache, single=options.name is not None)
    cache.start()
    if options.once or not context.console.is_terminal:
        cache.stop()
        context.console.print(screen.draw(), crop=False)
        return 0
    try:
        with Live(console=context.console, auto_refresh=False, screen=True) as live:
            while cache.jobs or options.name is None:
                live.update(screen.draw(), refresh=True)
                context.clock.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:  # that is how to leave it
        pass
    finally:
        cache.stop()
    return 0


class _Screen:
    """What is shown, and what has to be remembered for it."""

    def __init__(self, context: Context, cache: JobCache, *, single: bool) -> None:
        self._context, self._cache, self._single = context, cache, single
        self._sparklines: dict[str, SparklineSamples] = {}
        self._drawn = 0
        self._details: RenderableType = Text()

    def draw(self) -> RenderableType:
        jobs, now = self._cache.jobs, self._context.now()
        for job in jobs:
            self._sparklines.setdefault(job.uid, SparklineSamples()).take(job)
        table = show_top(jobs, self._sparklines, now, namespaces=self._cache.namespace is None, trouble=self._cache.trouble)
        if not self._single or not jobs:
            return table
        if self._drawn % EVENTS_EVERY == 0:
            self._events = self._context.events(jobs[0])
        self._drawn += 1
        return Group(table, Text(), show_status(jobs[0], self._events, now, max_events=8, max_workers=12))
