"""A scheduler control plane whose every placement is a durable execution."""
