"""One verb of `kubectl epj` in each module: its options, and its action."""
