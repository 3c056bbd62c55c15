"""The simulated driver: thousands of nodes in one process, with delays and faults on demand."""
