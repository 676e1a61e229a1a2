"""The vocabulary of the API: names, conditions, times, quantities, and what an error of the API server means. Pure."""
