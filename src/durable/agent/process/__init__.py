"""The process driver: this machine as a node, whose replicas are processes that outlive agents."""
