"""The recovery: moves work out of a lost region, and back."""
