"""The placement: one region's share of one workload generation."""
