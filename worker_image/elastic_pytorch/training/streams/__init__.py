"""Streamed data: shards that are dealt to the ranks, and the place in them."""
