"""The API server as an interface, and the clocks that go with it."""
