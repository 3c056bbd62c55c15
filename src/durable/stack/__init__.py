"""Temporal and PostgreSQL from pip, supervised in one state directory."""
