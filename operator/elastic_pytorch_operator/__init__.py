"""The operator of ElasticPyTorchJobs: watches jobs, pods and nodes, decides pods and rounds, talks to the agents.

    observe (cache, agent registry) -> decide (plan: pure) -> act (execute)

`handlers` is the only module that knows kopf, `kubernetes_cluster` the only one that knows the Kubernetes client; import-linter
keeps the deciding modules free of both, of I/O and of clocks.
"""

__version__ = "0.3.0-dev"
