"""How often an agent does what it does again and again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """The lease, and the periods that follow from it or stand for themselves."""

    lease_ttl_seconds: int = 15
    # A lost notification is made good by then.
    resync_seconds: float = 30.0
    # News that comes within this time travels together.
    gather_seconds: float = 0.02
    # After an error, before the next try.
    retry_seconds: float = 0.5
    # How often the agent looks whether a lease has ended.
    fence_check_seconds: float = 0.1

    @property
    def renew_seconds(self) -> float:
        """Two renewals may be lost before the third is too late."""
        return self.lease_ttl_seconds / 3

    @property
    def trusted_seconds(self) -> float:
        """How long the agent itself trusts a lease: what must stop by its end needs a moment."""
        return self.lease_ttl_seconds - min(1.0, self.lease_ttl_seconds / 10)

    @property
    def call_seconds(self) -> float:
        """An answer that takes longer than a lease helps nobody."""
        return float(max(self.lease_ttl_seconds, 5))
