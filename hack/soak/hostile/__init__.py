"""A tenant who does harm to all others, in a namespace of its own."""
