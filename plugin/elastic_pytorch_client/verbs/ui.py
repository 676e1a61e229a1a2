"""`kubectl epj ui`: the jobs on a page of this machine."""

import argparse
import signal
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from elastic_pytorch_client.errors import Refused
from elastic_pytorch_client.page.live_jobs import LiveJobs
from elastic_pytorch_client.page.server import PageServer
from elastic_pytorch_client.verbs.context import Context, add_all_namespaces
from elastic_pytorch_client.verbs.stacks import stacks_of

NAME, HELP = "ui", "a page in the browser that shows jobs, served from this machine until Ctrl-C"
EXAMPLES = ("-A", "--port 8123 --no-open")
WAIT_SECONDS = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_all_namespaces(parser)
    parser.add_argument(
        "--port", type=int, default=0, help="of 127.0.0.1 (default: one that is free)"
    )
    parser.add_argument(
        "--no-open", action="store_true", help="print the address, and open no browser"
    )


def run(context: Context, options: argparse.Namespace) -> int:
    if hasattr(signal, "SIGPIPE"):
        # A closed page ends its stream, not the process.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    live = LiveJobs(context.cluster, context.namespace)
    try:
        stacks = partial(stacks_of, context.cluster)
        server = PageServer(context.cluster, live, context.now, options.port, stacks)
    except (OSError, OverflowError) as error:
        raise Refused(f"cannot listen on port {options.port} of 127.0.0.1: {error}") from error
    with server.serving() as url, suppress(KeyboardInterrupt):
        context.console.print(f"The page is at {url}", soft_wrap=True, markup=False)
        context.console.print(
            "The address has a secret: who knows it sees what you may see. Ctrl-C ends it."
        )
        if not options.no_open and context.console.is_terminal:
            open_page(url)
        while True:
            context.clock.sleep(WAIT_SECONDS)
    return 0


def open_page(url: str, browser_of: Callable[[], webbrowser.BaseBrowser] = webbrowser.get) -> bool:
    """Opens a page in the user's browser, unless its only one would take over the terminal."""
    try:
        browser = browser_of()
    except webbrowser.Error:
        return False
    generic = isinstance(browser, webbrowser.GenericBrowser)
    in_terminal = generic and not isinstance(browser, webbrowser.BackgroundBrowser)
    return not in_terminal and browser.open(url)
