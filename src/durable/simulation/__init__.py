"""Seeded worlds on the real authority, and the invariants they must keep."""
