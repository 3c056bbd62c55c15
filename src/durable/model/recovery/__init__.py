"""A lost region: how it is recognised, how its work moves, and whether that would go well."""
