"""Read-only views for workflows, controllers and people."""
