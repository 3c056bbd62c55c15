"""Any sequence of steps, in any order, resent at will: every invariant holds after each of them."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from durable.authority.commit.regional_commit import commit_intents, is_final
from durable.authority.db.connection import Databases
from durable.authority.fleet.node_sessions import register_nodes
from durable.authority.fleet.observations import Observation, observe
from durable.authority.fleet.regions import read_region
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.invariants import violations
from durable.authority.recovery.fence import fence, reopen
from durable.authority.slots.ownership import SlotRegistry
from durable.model.fleet.capacity import RegionStatus
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import NodeId, RegionId
from durable.model.placement.intents import AnyIntent, Granted, Refused, ReleaseCause, Reserve
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import ObservedState, RegionState
from tests.authority.conftest import furnished
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST, World, node
from tests.conftest import Copies

NODES = ("a", "b")
LEASE_SECONDS = 300
REGIONS = st.sampled_from([EAST, WEST])
SLOTS = st.integers(0, 5)
AMOUNTS = st.builds(
    Resources.of, st.sampled_from([500, 1000, 5000]), st.sampled_from([64, 4096]), st.integers(0, 1)
)


def mostly(usual: Any, *unusual: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 8 + list(unusual))


@dataclass(frozen=True)
class ReserveDraft:
    """A reservation that somebody may ask for, wrong in one way or another now and then."""

    slot: int
    on: str
    amount: Resources
    elsewhere: bool
    epoch_error: int


WISHES = st.builds(
    ReserveDraft,
    slot=SLOTS,
    on=st.sampled_from([*NODES] * 5 + ["ghost"]),
    amount=AMOUNTS,
    elsewhere=mostly(False, True),
    epoch_error=mostly(0, -1, 1),
)


ACTIONS = st.sampled_from(
    ["go on", "live on"] * 4 + ["bind", "start", "evict", "expire", "lapse", "release", "report"]
)
CAUSES = st.sampled_from(ReleaseCause)
STATES = st.sampled_from(ObservedState)
CHANGES = st.sampled_from(["time", "slot", "slot", "grant", "grant", "nodes", "region"])
ENDS = st.permutations([EAST, WEST, None])
GRANTS = st.builds(Resources.of, st.integers(0, 6000), st.integers(0, 9000), st.integers(0, 2))


NOTHING: Any = cast(Callable[[], Any], multiple)()


@dataclass
class Held:
    """A reservation that was granted, as its owner remembers it."""

    region: RegionId
    reserve: Reserve
    token: int
    ordinal: int = 0
    steps: int = 0


def nodes(region: RegionId) -> list[NodeSpec]:
    return [node(name, region=region, gpus=2) for name in NODES]


async def build(world: World) -> World:
    """Two regions, two nodes each, one tenant, six slots."""
    for region in (EAST, WEST):
        await world.with_region(region)
        await world.with_nodes(*nodes(region), lease_seconds=LEASE_SECONDS, region=region)
        await world.with_tenant(grant=Resources.of(12_000, 32_768, 3), region=region)
    return await world.with_slots(6)


class Authority(RuleBasedStateMachine):
    """In the world that `build` makes, whoever comes may ask for anything."""

    held = Bundle("held")
    sent = Bundle("sent")

    def __init__(self, database: AbstractContextManager[str]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.opened = ExitStack()
        self.databases = Databases(self.opened.enter_context(database))
        self.world = World(self.databases)
        self.attempts = 0
        self.sequence = 0
        self.sessions = {(region, name): 1 for region in (EAST, WEST) for name in NODES}
        self.claims: list[Held] = []
        self.owners: dict[int, RegionId] = dict.fromkeys(range(6), EAST)

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        self.run(self.databases.close())
        self.runner.close()
        self.opened.close()

    def clock(self) -> datetime | None:
        """By which moment everything goes; None: by the database's own clock."""
        return self.world.now

    def pass_time(self, time: timedelta) -> None:
        self.world.now += time

    def status(self, region: RegionId) -> RegionStatus:
        return self.run(read_region(self.databases, region))

    def register(self, region: RegionId) -> None:
        begun = self.run(
            register_nodes(
                self.databases,
                region,
                nodes(region),
                epoch=self.status(region).epoch,
                lease_ttl_seconds=LEASE_SECONDS,
                now=self.clock(),
            )
        )
        self.sessions.update({(region, str(name)): session for name, session in begun.items()})

    def send(self, region: RegionId, *intents: AnyIntent) -> list[Granted | Refused]:
        engine = self.databases.at_region(region, "durable_commit")
        outcomes: list[Granted | Refused]
        outcomes = self.run(commit_intents(engine, region, intents, now=self.clock()))
        # The constraints are the last line: the rules must have seen it coming.
        codes = [outcome.refusal.code for outcome in outcomes if isinstance(outcome, Refused)]
        assert RefusalCode.BROKEN_CONSTRAINT not in codes
        return outcomes

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    @rule(target=held, drafts=st.lists(WISHES, min_size=1, max_size=4))
    def reserve(self, drafts: list[ReserveDraft]) -> Any:
        """Asks for several slots; those of one region share a transaction."""
        granted: list[Held] = []
        epochs = {region: self.status(region).epoch for region in (EAST, WEST)}
        wanted = [self.intent(draft, epochs) for draft in drafts]
        for region in (EAST, WEST):
            intents = [intent for intent in wanted if intent.region == region]
            for intent, outcome in zip(intents, self.send(region, *intents), strict=True):
                if isinstance(outcome, Granted):
                    assert intent.node != "ghost"
                    granted.append(Held(region, intent, outcome.token))
        self.claims += granted
        return multiple(*granted)

    def intent(self, draft: ReserveDraft, epochs: Mapping[RegionId, int]) -> Reserve:
        self.attempts += 1
        owner = self.owners[draft.slot]
        region = {EAST: WEST, WEST: EAST}[owner] if draft.elsewhere else owner
        return self.world.reserve(
            draft.slot,
            draft.on,
            region=region,
            resources=draft.amount,
            attempt=self.attempts,
            epoch=max(1, epochs[region] + draft.epoch_error),
        )

    def step(self, name: str, held: Held, **more: Any) -> tuple[AnyIntent, Granted | Refused]:
        held.ordinal += 1
        intent: AnyIntent = getattr(self.world, name)(
            held.token,
            held.reserve.slot,
            region=held.region,
            attempt=held.reserve.attempt,
            epoch=self.status(held.region).epoch,
            ordinal=held.ordinal,
            **more,
        )
        (outcome,) = self.send(held.region, intent)
        return intent, outcome

    # Few rules with much inside: Hypothesis leaves some rules out of each example, and a life is
    # short without most of these.
    @rule(target=sent, held=held, action=ACTIONS, cause=CAUSES, state=STATES)
    def act(self, held: Held, action: str, cause: ReleaseCause, state: ObservedState) -> Any:
        match action:
            case "go on":
                return self.next_step(held)
            case "live on":
                return multiple(*(self.next_step(held) for _ in range(3)))
            case "lapse":
                self.pass_time(timedelta(seconds=31))
                return self.step("expire", held)
            case "release":
                return self.step("release", held, cause=cause)
            case "report":
                self.report(held, state)
                return NOTHING
            case step:
                return self.step(step, held)

    def next_step(self, held: Held) -> tuple[AnyIntent, Granted | Refused]:
        """The next step of a life that goes well."""
        held.steps += 1
        if held.steps <= 3:
            return self.step(("bind", "start", "evict")[held.steps - 1], held)
        self.report(held, ObservedState.STOPPED)
        return self.step("release", held, cause=ReleaseCause.STOPPED)

    def report(self, held: Held, state: ObservedState) -> None:
        self.sequence += 1
        name = str(held.reserve.node)
        report = Observation(
            token=held.token,
            node=NodeId(name),
            session=self.sessions[(held.region, name)],
            sequence=self.sequence,
            state=state,
            evidence="seen",
        )
        self.run(observe(self.databases, held.region, [report], observer=TEST))

    @rule(sent=sent)
    def resend(self, sent: tuple[AnyIntent, Granted | Refused]) -> None:
        """A recorded outcome is for ever, whatever happened since."""
        intent, outcome = sent
        if not is_final(intent, outcome):
            return
        assert self.send(intent.region, intent) == [outcome]

    @rule(held=held)
    def resend_reserve(self, held: Held) -> None:
        epoch = self.status(held.region).epoch
        (outcome,) = self.send(held.region, held.reserve.model_copy(update={"epoch": epoch}))
        assert isinstance(outcome, Granted)
        assert outcome.token == held.token

    # ── the world around ────────────────────────────────────────────────────────────────────────

    @rule(change=CHANGES, region=REGIONS, slot=SLOTS, ends=ENDS, amount=GRANTS)
    def world_changes(
        self,
        change: str,
        region: RegionId,
        slot: int,
        ends: list[RegionId | None],
        amount: Resources,
    ) -> None:
        match change:
            case "time":
                self.pass_time(timedelta(seconds=20))
            case "slot":
                self.transfer_slot(slot)
            case "grant":
                self.transfer_grant(ends, amount)
            case "region":
                self.fence_or_open(region)
            case _:
                self.register(region)

    def fence_or_open(self, region: RegionId) -> None:
        status = self.status(region)
        why: dict[str, Any] = {"expected_epoch": status.epoch, "actor": TEST, "reason": "test"}
        if status.state is RegionState.OPEN:
            self.run(fence(self.databases, region, **why))
        else:
            self.run(reopen(self.databases, region, **why))
            self.register(region)

    def transfer_slot(self, slot: int) -> None:
        self.attempts += 1
        owner = self.owners[slot]
        heir = {EAST: WEST, WEST: EAST}[owner]
        registry = SlotRegistry(self.databases, RISK, API, FIRST_DIVISION)
        name = f"t{self.attempts}"
        with suppress(RefusedError):
            self.run(registry.transfer([slot], owner, heir, transfer=name, actor=TEST))
            self.owners[slot] = heir

    def transfer_grant(self, ends: list[RegionId | None], amount: Resources) -> None:
        self.attempts += 1
        transfer = GrantTransfer(
            id=f"g{self.attempts}",
            tenant=RISK,
            amount=amount,
            from_region=ends[0],
            to_region=ends[1],
            actor=TEST,
        )
        with suppress(RefusedError):
            self.run(transfer_grant(self.databases, transfer))

    @invariant()
    def every_promise_holds(self) -> None:
        async def check() -> list[Any]:
            async with self.databases.at_global("durable_reader").begin() as connection:
                return list(await violations(connection))

        assert self.run(check()) == []


@pytest.mark.parametrize("examples", [8, pytest.param(25, marks=pytest.mark.soak)])
def test_every_invariant_holds_after_every_step(
    copies: Copies, template: str, examples: int
) -> None:
    built = furnished(copies, template, build)
    run_state_machine_as_test(
        cast(Any, lambda: Authority(copies.lend(built))),
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            # Without shrinking: a step asks a real server, and a failure prints its steps anyway.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
