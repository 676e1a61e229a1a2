"""How soon a job is planned after a report of one of its agents. Pure.

A plan looks at every worker of the job. If each of a thousand reports that come together had a plan of its own, their cost would grow with
the square of the workers. So reports wait for each other, and the longer the more agents the job has.
"""

SECONDS_PER_AGENT = 50e-6  # about four times what a plan costs for each worker


def delay_of_change(agents: int) -> float:
    """Seconds until the plan after a report on which a decision may depend.

    Args:
        agents: how many the job has.
    """
    return agents * SECONDS_PER_AGENT
