"""Drains: the orders, their marks on claims, and what is left to move."""
