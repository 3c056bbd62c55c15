"""The state directory: its lock, the record of the stack that runs there, and its processes."""
