"""THE ERRANDS: what a regional worker does beside its workflows; one background duty per file."""
