"""Declares a key lost: what it signs is refused from then on, and a new key counts."""

from collections.abc import AsyncIterator
from datetime import timedelta

from durable.authority.operators.changes import read_operator, set_key
from durable.authority.overrides.rows import read_override
from durable.client import Durable
from durable.drills.checks import audit_tells, invariants_hold, is_refused
from durable.drills.drill import Expectation
from durable.drills.people import temporary_person, with_new_key, without_key
from durable.drills.world import World, busiest_region
from durable.model.ids import OverrideId
from durable.model.operators.rights import Right, Scope, Verb
from durable.model.refusal import RefusalCode
from durable.model.states import OverrideState
from durable.signals.names import override_id
from durable.temporal.overrides import new_id

# It must be signed, and does nothing before it is approved.
KIND, EFFECT = "emergency-quota", {"amount": {"cpu": "100m"}}
LASTS = timedelta(minutes=15)
WHY = "drill: lost operator key"
OF_OPERATOR = ("add operator", "set key", "set key", "set key")
OF_MESSAGES = ("reject message propose",) * 3


async def run(world: World) -> AsyncIterator[Expectation]:
    """An operator loses their key, which others then try to use."""
    durable = world.durable
    subject = await world.subject()
    where = Scope(tenant=subject.tenant, region=busiest_region(subject))
    right = Right(verb=Verb.OVERRIDE, scope=where)
    async with temporary_person(durable, right) as lost:
        earlier, stolen, later = new_id(KIND), new_id(KIND), new_id(KIND)
        await _propose(lost, where, earlier)
        yield await _is_proposed(durable, lost, earlier, f"{lost.actor} signs with their key")
        await set_key(durable.databases, lost.actor, None, actor=durable.actor, reason=WHY)
        yield Expectation(
            what="the key is declared lost, and the authority knows none of theirs",
            met=(await read_operator(durable.databases, lost.actor)).public_key is None,
        )
        yield await is_refused(
            "what the lost key signs is refused",
            RefusalCode.SIGNATURE_WRONG,
            _propose(lost, where, stolen),
        )
        yield await is_refused(
            "so is the same without a signature",
            RefusalCode.SIGNATURE_MISSING,
            _propose(without_key(lost), where, stolen),
        )
        owner = await with_new_key(durable, lost.actor)
        await _propose(owner, where, later)
        yield await _is_proposed(durable, owner, later, f"{lost.actor} signs with a new key")
        yield await is_refused(
            "what the lost key signs is still refused",
            RefusalCode.SIGNATURE_WRONG,
            _propose(lost, where, stolen),
        )
        async for expectation in _clear_up(world, lost, stolen, (earlier, later)):
            yield expectation
    yield await invariants_hold(world)


async def _clear_up(
    world: World, lost: Durable, stolen: OverrideId, proposed: tuple[OverrideId, ...]
) -> AsyncIterator[Expectation]:
    """Looks at what came of it all, and revokes it."""
    durable = world.durable
    yield Expectation(
        what="nothing that was refused has changed anything",
        met=await read_override(durable.databases, stolen) is None,
    )
    for override in proposed:
        await durable.overrides.revoke(override, reason=WHY)
    states = {(await durable.overrides.read(override)).state for override in proposed}
    yield Expectation(
        what=f"{durable.actor} revokes what was proposed in that name",
        met=states == {OverrideState.REVOKED},
        seen=", ".join(f"override {override}" for override in proposed),
    )
    who, sent = f"operator/{lost.actor}", override_id(stolen)
    yield await audit_tells(world, who, OF_OPERATOR, "the audit tells who set which key")
    yield await audit_tells(world, sent, OF_MESSAGES, "the audit tells what was refused")


async def _propose(person: Durable, where: Scope, name: OverrideId) -> None:
    scope = where.model_dump()
    await person.overrides.create(KIND, scope, effect=EFFECT, ttl=LASTS, reason=WHY, id=name)


async def _is_proposed(
    durable: Durable, person: Durable, name: OverrideId, what: str
) -> Expectation:
    override = await read_override(durable.databases, name)
    return Expectation(
        what=f"{what}, and that counts",
        met=override is not None
        and override.state is OverrideState.PROPOSED
        and override.actor == person.actor,
        seen=f"override {name}, {'unknown' if override is None else override.state}",
    )
