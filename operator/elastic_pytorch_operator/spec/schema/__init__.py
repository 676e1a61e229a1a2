"""What a job may hold: the schema of the CRD, its rules, and the validator. Pure."""
