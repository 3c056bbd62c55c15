"""Where work runs: regions, nodes, capacity, and nodes that are emptied."""
