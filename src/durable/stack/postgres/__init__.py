"""A PostgreSQL server from pip: its process, its data directory, and its user when run as root."""
