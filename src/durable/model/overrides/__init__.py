"""Human control with a time limit: the kinds of override, and what they can do."""
