"""The files of a job, read and judged as the API server would."""
