"""The local page of `kubectl epj ui`: its data, and its server."""
