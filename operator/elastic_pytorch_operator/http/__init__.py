"""A small HTTP server: connections, their limits, requests."""
