"""The local page of `kubectl epj ui`: what it shows, and the server that it comes from."""
