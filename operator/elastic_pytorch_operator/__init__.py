"""The operator of ElasticPyTorchJobs: watches jobs, pods and nodes, decides pods and rounds, talks to the agents.

    informer, agents (observe) -> planning (decide: pure) -> reconcile (act)

A moment (`now`, `since`, `until`, `failed_at`) is in monotonic seconds of this process, where its
definition names no other clock, and `time` or `..._time` is in RFC 3339. None says that there is no
such thing, or not yet.

docs/internals/architecture.md describes the packages; import-linter holds them in their layers.
"""

__version__ = "0.3.0-dev"
