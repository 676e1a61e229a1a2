"""The agent's end of the talk with the operator (docs/protocol.md)."""
