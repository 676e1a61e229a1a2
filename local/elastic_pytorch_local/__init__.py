"""Local mode: one job on this machine, with the operator's own planner and real agents, and no cluster."""
