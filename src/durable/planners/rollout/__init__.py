"""How a workload changes without harm: which slots are replaced next, and when it is undone."""
