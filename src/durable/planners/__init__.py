"""THE PLANS: pure functions that decide the next step of a rollout, a policy or a recovery."""
