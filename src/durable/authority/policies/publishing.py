"""The next revision: published under the next number, once for each content."""

import json

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.locks import POLICIES, hold_lock
from durable.authority.db.transaction import global_transaction
from durable.authority.fleet.policies import add_revision
from durable.authority.operators.authorization import authorize
from durable.authority.operators.refusals import audits_refusals
from durable.authority.policies.orders import ROLE
from durable.model.ids import PolicyRevision
from durable.model.operators.rights import EVERYTHING, OperatorMessage, Verb
from durable.model.policy.rollout import PolicyPhase
from durable.signals.names import NEXT_POLICY
from durable.signals.policies import PublishPolicy

_NEXT = text("SELECT coalesce(max(revision), 0) + 1 FROM global.policies")

_SAME = text("""
    SELECT revision FROM global.policies JOIN global.policy_rollouts USING (revision)
     WHERE spec = CAST(:spec AS jsonb)
       AND phase NOT IN ('superseded', 'rolling_back', 'rolled_back')
     ORDER BY revision DESC LIMIT 1
""")


@audits_refusals
@global_transaction(ROLE, "publish a policy")
async def publish_next(connection: AsyncConnection, publication: PublishPolicy) -> PolicyRevision:
    """The revision with this content: a new one, or the one that has it and may still be used.

    It is judged as a message to a workflow is, and signed where the policy in force demands that.
    """
    await hold_lock(connection, POLICIES)
    payload = publication.model_dump(mode="json")
    asked = OperatorMessage(workflow_id=NEXT_POLICY, message="publish", payload=payload)
    await authorize(connection, asked, Verb.POLICY, EVERYTHING)
    spec, actor, reason = publication.spec, publication.actor, publication.reason
    same = await connection.execute(_SAME, {"spec": json.dumps(spec)})
    known: PolicyRevision | None = same.scalar_one_or_none()
    if known is not None:
        return known
    revision: PolicyRevision = (await connection.execute(_NEXT)).scalar_one()
    phase = PolicyPhase.SHADOW
    added = await add_revision(connection, revision, spec, actor, phase=phase, reason=reason)
    assert added, "nothing else publishes while this holds the lock"
    return revision
