"""Regions, nodes and policies, as operators and agents write them."""
