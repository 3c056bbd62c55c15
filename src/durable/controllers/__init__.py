"""What a worker does beside its workflows; one background controller per file."""
