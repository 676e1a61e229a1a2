"""One replica of the operator, put together and run."""
