"""A region as a decision sees it: arrays, one row per node."""
