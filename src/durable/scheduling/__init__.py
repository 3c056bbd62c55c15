"""THE DECISION: pure (Snapshot, Request, Policy) -> Proposal."""
