"""The files that a job is described by, read and judged as the API server would."""
