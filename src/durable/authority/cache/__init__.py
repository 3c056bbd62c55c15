"""A region in memory, kept up to date by version."""
