"""THE HANDS: one idempotent side effect each."""
