"""Workloads as the global side keeps them: admitted once per request, divided, deleted."""
