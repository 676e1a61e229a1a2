"""One verb of `kubectl epj` in each module: its options, and what it does."""
