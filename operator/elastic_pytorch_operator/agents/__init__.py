"""The operator's end of the talk with the agents (docs/protocol.md)."""
