"""Connecting to Temporal, payload conversion, the sandbox, worker wiring."""
