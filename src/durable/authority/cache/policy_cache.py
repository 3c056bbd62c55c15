"""Policy revisions in memory: each is read once, because it never changes."""

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError, AuthorityUnreachableError
from durable.authority.fleet.policies import read_revision
from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy import Policy
from durable.scheduling.policies import PolicyError, read_policy


class CachedPolicies:
    """Once a revision is known, deciding by it no longer needs the global side."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        self._known: dict[PolicyRevision, Policy | PolicyError] = {}

    async def learn(self, revision: PolicyRevision | None) -> bool:
        """Reads a revision that is not known yet; whether there was anything to learn."""
        if revision is None or revision in self._known:
            return False
        published = await read_revision(self._databases, revision)
        try:
            self._known[revision] = read_policy(published.spec)
        except PolicyError as error:
            self._known[revision] = error
        return True

    def of(self, revision: PolicyRevision | None) -> tuple[PolicyRevision, Policy]:
        """The revision with its content, or a sentence on why there is none to decide by."""
        if revision is None:
            raise AuthorityError(
                f"{self._region} has no active policy; load the fleet, or activate a revision."
            )
        policy = self._known.get(revision)
        if policy is None:
            raise AuthorityUnreachableError(
                f"Policy revision {revision} of {self._region} was not read yet; try again shortly."
            )
        if isinstance(policy, PolicyError):
            raise AuthorityError(
                f"Policy revision {revision}, active in {self._region}, cannot be used: {policy}"
            )
        return revision, policy
