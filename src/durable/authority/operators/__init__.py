"""People and services: who they are, what they may do, and whether it was they who asked."""
