"""Which replica leads, and that only this one writes."""
