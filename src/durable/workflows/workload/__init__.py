"""The workload: desired state, divided over regions."""
