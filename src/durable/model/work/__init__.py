"""What runs: workloads, jobs, rollouts, shares and how far they have come."""
