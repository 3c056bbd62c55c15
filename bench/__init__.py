"""Benchmarks: each prints a table and ends with one line of JSON."""
