"""The operator of ElasticPyTorchJobs: watches jobs, pods and nodes, decides pods and rounds, talks to the agents.

    informer, agents (observe) -> planning (decide: pure) -> reconcile (act)

docs/internals/architecture.md describes the packages; import-linter holds them in their layers.
"""

__version__ = "0.3.0-dev"
