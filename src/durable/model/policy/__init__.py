"""The scheduler policy, and how a revision of it comes into force."""
