"""The operator's end of the talk with the agents (docs/internals/protocol.md)."""
