"""How a policy revision comes into force: the next step, and what stops it."""
