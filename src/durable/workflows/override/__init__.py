"""The override: what a person decided for a while, from the proposal to its end."""
