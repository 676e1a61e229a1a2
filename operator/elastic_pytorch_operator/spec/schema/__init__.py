"""What a job may hold: the schema of the CRD and its rules, which `make docs` copies here without texts, and their judge. Pure."""
