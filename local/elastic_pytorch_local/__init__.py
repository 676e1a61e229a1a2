"""Local mode: one job on this machine, with the operator's planner, real agents, no cluster."""
