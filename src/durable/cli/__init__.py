"""The `durable` command."""
