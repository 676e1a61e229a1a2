"""How many files the process may open, and how many of them may be clients' connections."""

import resource

OWN_FILES = 256  # for what must go on when clients have the rest: connections to the API server, probes, metrics


def raise_limit() -> None:
    """Lets the process open as many files as it may: container runtimes start it with 1024, which two thousand agents' connections pass."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections() -> int:
    """How many connections clients may have open."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, most - OWN_FILES)
