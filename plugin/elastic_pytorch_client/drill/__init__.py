"""Faults that a user tries on a running job of theirs, to see what each costs."""
