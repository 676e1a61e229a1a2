"""The operator of ElasticPyTorchJobs: observes the cluster, decides pods and rounds, and acts.

    informer, agents (observe) -> planning (decide: pure) -> reconcile (act)

A moment (`now`, `since`, `until`, `failed_at`) is in monotonic seconds of this process, unless its
definition names another clock; `time` or `..._time` is in RFC 3339. None: not at all, or not yet.

docs/internals/architecture.md describes the packages; import-linter holds them in their layers.
"""

__version__ = "0.3.0-dev"
