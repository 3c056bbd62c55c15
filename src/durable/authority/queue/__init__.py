"""What waits for a node in a region, and every decision made about it."""
