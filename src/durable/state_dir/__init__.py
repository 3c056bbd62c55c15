"""The state directory: what a running stack records there for other commands."""
