"""The vocabulary of the API: names, conditions, times, quantities and errors. Pure."""
