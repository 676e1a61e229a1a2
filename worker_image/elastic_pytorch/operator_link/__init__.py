"""The agent's end of the protocol with the operator (docs/internals/protocol.md)."""
