"""People propose, approve, extend, revoke and let expire while work is placed: S1 to S9 hold."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, currently_in_test_context, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from sqlalchemy import text

from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.overrides.changes import expire_override
from durable.authority.overrides.copies import copy_override
from durable.authority.overrides.reads import obeyed_overrides
from durable.authority.overrides.rows import read_override
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId, OverrideId, RegionId
from durable.model.overrides.kinds import KINDS
from durable.model.overrides.override import Override
from durable.model.placement.intents import Granted, Refused, ReleaseCause
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import ObservedState, OverrideState
from tests.authority.commit.test_state_machine import (
    NODES,
    SLOTS,
    Authority,
    Held,
    ReserveDraft,
    build,
    mostly,
)
from tests.authority.conftest import furnished
from tests.authority.moved_clock import move_clock, stop_clock
from tests.authority.overrides.asking import change, give_keys, propose
from tests.authority.world import EAST, TEST, WEST, World
from tests.conftest import Copies

MINUTE = timedelta(minutes=1)
SMALL = Resources.of(500, 64)
T = TypeVar("T")
Proposed = tuple[str, dict[str, str], dict[str, Any]]
# Kind, and what its scope and effect are in a region.
DRAW = {"amount": {"cpu": 3, "memory": "4Gi"}}
INCIDENT = "inc-1"
PROPOSALS: tuple[Proposed, ...] = (
    ("avoid-zone", {"zone": "a"}, {"move": True}),
    ("avoid-node", {"node": "b"}, {"move": False}),
    ("pin", {"node": "a", "tenant": "risk", "workload": "api"}, {"move": True}),
    ("hold", {"tenant": "risk", "workload": "api"}, {}),
    ("emergency-quota", {"tenant": "risk"}, DRAW),
    ("emergency-quota", {"tenant": "risk"}, {"amount": {"cpu": 1, "memory": "64Mi", "gpu": 1}}),
    ("recovery-budget", {}, {**DRAW, "incident": INCIDENT}),
    ("break-glass", {"tenant": "risk"}, {"gates": ["cordon", "avoided"]}),
    ("priority-boost", {"tenant": "risk"}, {"by": 100}),
    ("policy-freeze", {}, {}),
)


@dataclass(frozen=True)
class Act:
    """What somebody does next; each kind of act looks at what it needs."""

    what: str
    proposal: Proposed = PROPOSALS[0]
    region: RegionId = EAST
    # Counted back from the latest override, budget or claim.
    number: int = 0
    slot: int = 0
    on: str = "a"
    floor: int = 0
    is_agreed: bool = False
    is_copied: bool = True
    is_forced: bool = False


ACTS = st.builds(
    Act,
    what=st.sampled_from(
        # The first is what Hypothesis takes for the simplest.
        ["pass time"] + ["propose"] * 5 + ["wait"] * 3 + ["work"] * 5 + ["recover"] * 2
        + ["cordon", "stop"] * 2
        + ["approve", "reject", "revoke", "extend", "expire", "uncordon", "floor"]
    ),
    proposal=st.sampled_from(PROPOSALS),
    region=mostly(EAST, *[WEST] * 4),
    number=st.integers(0, 5),
    slot=SLOTS,
    on=st.sampled_from(NODES),
    floor=st.integers(0, 2),
    is_agreed=mostly(True, False, False),
    is_copied=mostly(True, False, False),
    is_forced=st.booleans(),
)  # fmt: skip

_SET_FLOOR = text("""
    INSERT INTO regional.disruption_floors (region, tenant, workload, revision, must_serve)
    VALUES (:region, 'risk', 'api', 1, :must_serve)
        ON CONFLICT (region, tenant, workload) DO UPDATE SET must_serve = excluded.must_serve
""")
_CLAIM = text("""
    SELECT region, token FROM regional.reservations
     WHERE tenant = 'risk' AND workload = 'api' AND claimed_slot = :slot
""")
_SERVING = text("""
    SELECT r.token FROM regional.reservations AS r
      JOIN regional.bindings AS b USING (region, token)
      JOIN regional.observations AS o USING (region, token)
      JOIN regional.node_leases AS l USING (region, node)
     WHERE region = :region AND b.state = 'starting' AND b.stop_requested_at IS NULL
       AND o.state = 'serving' AND l.expires_at > clock_timestamp()
""")


def latest(items: Sequence[T], number: int) -> T:
    return items[-1 - number % len(items)]


def test_the_machine_proposes_every_kind() -> None:
    assert {kind for kind, _, _ in PROPOSALS} == set(KINDS)


async def build_with_people(world: World) -> World:
    await build(world)
    await give_keys(world.databases)
    for region in (EAST, WEST):
        await world.with_moved(INCIDENT, region=region)
    async with world.databases.at_global("durable_workload").begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO global.workloads (tenant, workload, generation, spec)"
                " VALUES ('risk', 'api', 1, '{}')"
            )
        )
    return world


class WithOverrides(Authority):
    """Everything goes by the database's clock, which stands still until time passes."""

    def __init__(self, database: AbstractContextManager[str]) -> None:
        super().__init__(database)
        self.url = self.databases.urls[0]
        stop_clock(self.url, self.world.now)
        self.names: list[str] = []
        self.budgets: list[str] = []
        self.requests = 0
        self.floors = dict.fromkeys((EAST, WEST), 0)
        self.reached: set[OverrideState] = set()

    def clock(self) -> None:
        """The database's own."""

    def pass_time(self, time: timedelta) -> None:
        super().pass_time(time)
        move_clock(self.url, self.world.now)

    def sender(self) -> dict[str, str]:
        """What is new in each message."""
        self.requests += 1
        return {"request_id": f"r-{self.requests}", "signed_at": self.world.now.isoformat()}

    def note(self, override: Override) -> None:
        self.reached.add(override.state)
        if currently_in_test_context():
            event(f"{override.kind} {override.state}")

    # ── overrides ───────────────────────────────────────────────────────────────────────────────

    # One rule with much inside: Hypothesis leaves some rules out of each example.
    @rule(acts=st.lists(ACTS, min_size=4, max_size=8))
    def shift(self, acts: list[Act]) -> None:
        for act in acts:
            self.do(act)
            self.every_promise_holds()

    def do(self, act: Act) -> None:
        match act.what:
            case "propose":
                self.propose(act)
            case "pass time":
                self.pass_time(MINUTE / 2)
            case "cordon" | "uncordon":
                self.set_cordon(act.region, act.on, is_cordoned=act.what == "cordon")
            case "floor":
                self.set_floor(act.region, act.floor)
            case "work":
                self.work(act)
            case "recover":
                if self.budgets:
                    name = latest(self.budgets, act.number)
                    self.work(act, draw={"budget": f"override/{name}", "incident": INCIDENT})
            case "stop":
                if self.claims:
                    self.stop(latest(self.claims, act.number), act.is_forced)
            case _:
                if self.names:
                    self.decide(latest(self.names, act.number), act)

    def propose(self, act: Act) -> None:
        kind, scope, effect = act.proposal
        name = f"o-{len(self.names)}"
        self.names.append(name)
        if kind == "recovery-budget":
            self.budgets.append(name)
        there = {**scope, "region": str(act.region)}
        fields: dict[str, Any] = {"effect": effect, "ttl": MINUTE, **self.sender()}
        answered = self.run(propose(self.databases, kind, there, name=name, **fields))
        self.note(answered.target)
        if act.is_copied:
            self.copy(name)
        if act.is_agreed and KINDS[kind].needs_approval:
            self.decide(name, replace(act, what="approve"))

    def decide(self, name: str, act: Act) -> None:
        """Somebody decides about it, or its time does."""
        with suppress(RefusedError):
            if act.what in ("wait", "expire"):
                self.expire(name, waits=act.what == "wait")
            else:
                sent: dict[str, Any] = {"by": MINUTE / 2, **self.sender()}
                for _ in range(2):
                    self.run(change(self.databases, act.what, name=name, **sent))
        self.note(self.read(name))
        if act.is_copied:
            self.copy(name)

    def expire(self, name: str, *, waits: bool) -> None:
        """Says that its time is over, which may be too early unless it waits for that."""
        left = self.read(name).expires_at - self.world.now
        if waits and left > timedelta(0):
            self.pass_time(left)
            if left > MINUTE:
                # A proposal's; agents keep their nodes meanwhile.
                self.register(EAST)
                self.register(WEST)
        self.run(expire_override(self.databases, OverrideId(name)))

    def read(self, name: str) -> Override:
        override: Override | None = self.run(read_override(self.databases, OverrideId(name)))
        assert override is not None
        return override

    def copy(self, name: str) -> None:
        override = self.read(name)
        if override.activated_at is not None and override.scope.region is not None:
            self.run(copy_override(self.databases, override.scope.region, override))

    # ── what meets them ─────────────────────────────────────────────────────────────────────────

    def work(self, act: Act, draw: Any = None) -> RefusalCode | None:
        """A slot that is reserved, bound, started and serves, or the first reason against it."""
        self.empty(act.slot)
        region = self.owners[act.slot]
        draft = ReserveDraft(act.slot, act.on, SMALL, elsewhere=False, epoch_error=0)
        plain = self.intent(draft, {region: self.status(region).epoch})
        intent = plain.model_validate({**plain.model_dump(), "draw": draw})
        (outcome,) = self.send(region, intent)
        if isinstance(outcome, Refused):
            return outcome.refusal.code
        held = Held(region, intent, outcome.token)
        self.claims.append(held)
        for step in ("bind", "start"):
            _, outcome = self.step(step, held)
            if isinstance(outcome, Refused):
                return outcome.refusal.code
        self.report(held, ObservedState.SERVING)
        return None

    def empty(self, slot: int) -> None:
        """Ends what is in a slot, so that it may be placed again."""

        async def claim() -> Any:
            async with self.databases.at_global("durable_reader").begin() as connection:
                return (await connection.execute(_CLAIM, {"slot": slot})).one_or_none()

        found = self.run(claim())
        if found is None:
            return
        held = next(h for h in self.claims if (h.region, h.token) == (found.region, found.token))
        self.step("evict", held, is_forced=True)
        self.report(held, ObservedState.STOPPED)
        for cause in (ReleaseCause.WITHDRAWN, ReleaseCause.STOPPED):
            self.step("release", held, cause=cause)

    def set_cordon(self, region: RegionId, on: str, *, is_cordoned: bool) -> None:
        target = NodesTarget.of_node(region, NodeId(on))
        call = cordon_nodes if is_cordoned else uncordon_nodes
        self.run(call(self.databases, target, actor=TEST, reason="fan"))

    def set_floor(self, region: RegionId, must_serve: int) -> None:
        async def write() -> None:
            engine = self.databases.at_region(region, "durable_workload")
            async with engine.begin() as connection:
                await connection.execute(_SET_FLOOR, {"region": region, "must_serve": must_serve})

        self.run(write())
        self.floors[region] = must_serve

    def serving(self, region: RegionId) -> set[int]:
        async def read() -> set[int]:
            engine = self.databases.at_region(region, "durable_reader")
            async with engine.begin() as connection:
                return set((await connection.execute(_SERVING, {"region": region})).scalars())

        return self.run(read())

    def stop(self, held: Held, forced: bool) -> RefusalCode | None:
        """The part of S9 that there is: a stop by choice leaves as many serving as have to.

        Of what serves, only the latest is kept, so it can be checked at the stop alone.
        """
        before, floor = self.serving(held.region), self.floors[held.region]
        breaks = held.token in before and len(before) - 1 < floor
        _, outcome = self.step("evict", held, is_forced=forced)
        after = self.serving(held.region)
        if isinstance(outcome, Granted):
            assert forced or not breaks
            assert after == before - {held.token}
            return None
        assert after == before
        code = outcome.refusal.code
        assert (code is RefusalCode.DISRUPTION_ALLOWANCE) == (breaks and not forced)
        return code


@pytest.mark.parametrize("examples", [4, pytest.param(12, marks=pytest.mark.soak)])
def test_every_invariant_holds_with_every_kind_of_override(
    copies: Copies, template: str, examples: int
) -> None:
    built = furnished(copies, template, build_with_people)
    run_state_machine_as_test(
        cast(Any, lambda: WithOverrides(copies.lend(built))),
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


# ── the same acts, in an order in which each of them matters ───────────────────────────────────


class Scripted(WithOverrides):
    """Looks at every invariant after each act, as the machine does."""

    def starts(self, kind: str, **fields: Any) -> str:
        """Somebody proposes it for us-east; its name."""
        proposal = next(one for one in PROPOSALS if one[0] == kind)
        self.shift(acts=[Act("propose", proposal=proposal, **fields)])
        return self.names[-1]

    def then(self, what: str, name: str) -> OverrideState:
        """What has become of it."""
        number = len(self.names) - 1 - self.names.index(name)
        self.shift(acts=[Act(what, number=number)])
        return self.read(name).state

    def waits(self) -> None:
        """As long as an override lasts here."""
        self.shift(acts=[Act("pass time")] * 2)

    def tries(self, slot: int, **fields: Any) -> RefusalCode | None:
        refusal = self.work(Act("work", slot=slot), **fields)
        self.every_promise_holds()
        return refusal

    def obeys(self, name: str) -> bool:
        return OverrideId(name) in self.run(obeyed_overrides(self.databases, EAST))


@pytest.fixture
def machine(copies: Copies, template: str) -> Iterator[Scripted]:
    made = Scripted(copies.lend(furnished(copies, template, build_with_people)))
    yield made
    made.teardown()


def test_the_machines_acts_reach_every_state(machine: Scripted) -> None:
    # Active, and by the clock alone expired: before anybody says so, and after.
    zone = machine.starts("avoid-zone")
    assert machine.tries(0) is RefusalCode.AVOIDED
    assert machine.then("expire", zone) is OverrideState.ACTIVE, "it is too early"
    assert machine.then("extend", zone) is OverrideState.ACTIVE
    machine.waits()
    assert machine.tries(0) is RefusalCode.AVOIDED, "it was extended"
    machine.waits()
    assert machine.tries(0) is None
    assert machine.obeys(zone)
    assert machine.then("expire", zone) is OverrideState.EXPIRED
    assert not machine.obeys(zone), "the region's copy has ended, too"

    # Proposed, and expired because nobody approved it; rejected.
    assert machine.then("wait", machine.starts("emergency-quota")) is OverrideState.EXPIRED
    assert machine.then("reject", machine.starts("break-glass")) is OverrideState.REJECTED

    # A cordon that is passed until the glass is revoked.
    glass = machine.starts("break-glass", is_agreed=True)
    machine.shift(acts=[Act("cordon")])
    assert machine.tries(1) is None
    assert machine.then("revoke", glass) is OverrideState.REVOKED
    assert machine.tries(2) is RefusalCode.NODE_CORDONED
    machine.shift(acts=[Act("uncordon")])
    assert machine.tries(2) is None

    assert machine.reached == set(OverrideState)


def test_the_machines_acts_draw_on_what_is_kept_for_recovery(machine: Scripted) -> None:
    budget = machine.starts("recovery-budget")
    draw: Any = {"budget": f"override/{budget}", "incident": INCIDENT}
    assert machine.tries(0, draw=draw) is RefusalCode.UNKNOWN_BUDGET, "nobody has approved it"
    assert machine.then("approve", budget) is OverrideState.ACTIVE
    assert machine.tries(0, draw=draw) is None
    machine.waits()
    assert machine.tries(1, draw=draw) is RefusalCode.BUDGET_CLOSED, "its time is over"
    assert machine.then("expire", budget) is OverrideState.EXPIRED
    assert machine.tries(1, draw=draw) is RefusalCode.BUDGET_CLOSED


def test_the_machines_acts_stop_what_serves_down_to_the_floor(machine: Scripted) -> None:
    assert machine.tries(0) is None
    assert machine.tries(1) is None
    first, second = machine.claims
    assert machine.serving(EAST) == {first.token, second.token}
    machine.shift(acts=[Act("floor", floor=1)])
    assert machine.stop(first, forced=False) is None
    assert machine.stop(second, forced=False) is RefusalCode.DISRUPTION_ALLOWANCE
    assert machine.serving(EAST) == {second.token}
    machine.shift(acts=[Act("stop", is_forced=True)])
    assert machine.serving(EAST) == set()
