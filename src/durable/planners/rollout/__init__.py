"""How a workload changes without harm: which slots are next, and when it is rolled back."""
