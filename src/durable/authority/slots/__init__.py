"""Which region may bind which slot."""
