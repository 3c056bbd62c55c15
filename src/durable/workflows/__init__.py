"""THE MEMORY: durable control flow; waits, timers, retries, messages."""
