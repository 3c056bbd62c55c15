"""Human control with a time limit: one file for each kind of override, and what kinds can do."""
