"""Temporal and PostgreSQL from wheels, supervised in one state directory."""
