"""People propose, approve, extend, revoke and let expire while work is placed: S1 to S9 hold."""

from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from durable.authority.overrides.changes import expire_override
from durable.authority.overrides.copies import copy_override
from durable.authority.overrides.rows import read_override
from durable.model.ids import OverrideId, RegionId
from durable.model.refusal import RefusedError
from tests.authority.commit.test_state_machine import REGIONS, Authority, build
from tests.authority.conftest import furnished
from tests.authority.overrides.asking import change, give_keys, propose
from tests.authority.world import World
from tests.conftest import Copies

MINUTE = timedelta(minutes=1)
# Kind, and what its scope and effect are in a region.
DRAW = {"amount": {"cpu": 3, "memory": "4Gi"}}
PROPOSALS: tuple[tuple[str, dict[str, str], dict[str, Any]], ...] = (
    ("avoid-zone", {"zone": "a"}, {"move": True}),
    ("avoid-node", {"node": "b"}, {"move": False}),
    ("pin", {"node": "a", "tenant": "risk", "workload": "api"}, {"move": True}),
    ("hold", {"tenant": "risk", "workload": "api"}, {}),
    ("emergency-quota", {"tenant": "risk"}, DRAW),
    ("emergency-quota", {"tenant": "risk"}, {"amount": {"cpu": 1, "memory": "64Mi", "gpu": 1}}),
    ("recovery-budget", {}, {**DRAW, "incident": "inc-1"}),
    ("break-glass", {"tenant": "risk"}, {"gates": ["cordon", "avoided"]}),
    ("priority-boost", {"tenant": "risk"}, {"by": 100}),
)
ACTS = st.sampled_from(["approve", "approve", "revoke", "extend", "expire", "reject", "pass time"])


async def build_with_people(world: World) -> World:
    await build(world)
    await give_keys(world.databases)
    async with world.databases.at_global("durable_workload").begin() as connection:
        await connection.exec_driver_sql(
            "INSERT INTO global.workloads (tenant, workload, generation, spec)"
            " VALUES ('risk', 'api', 1, '{}')"
        )
    return world


class WithOverrides(Authority):
    """Commits go by a clock that begins as the database's does and may be ahead of it."""

    def __init__(self, database: AbstractContextManager[str]) -> None:
        super().__init__(database)
        self.world.now = datetime.now(UTC)
        self.names: list[str] = []
        self.requests = 0

    def request(self) -> str:
        self.requests += 1
        return f"r-{self.requests}"

    @rule(proposal=st.sampled_from(PROPOSALS), region=REGIONS, is_copied=st.booleans())
    def propose(
        self,
        proposal: tuple[str, dict[str, str], dict[str, Any]],
        region: RegionId,
        is_copied: bool,
    ) -> None:
        kind, scope, effect = proposal
        name = f"o-{len(self.names)}"
        self.run(
            propose(
                self.databases,
                kind,
                {**scope, "region": str(region)},
                effect=effect,
                ttl=MINUTE,
                name=name,
                request_id=self.request(),
            )
        )
        self.names.append(name)
        if is_copied:
            self.copy(name)

    @rule(number=st.integers(0, 50), act=ACTS, is_copied=st.booleans(), twice=st.booleans())
    def decide(self, number: int, act: str, is_copied: bool, twice: bool) -> None:
        if act == "pass time":
            self.world.now += MINUTE / 2
            return
        if not self.names:
            return
        name = self.names[number % len(self.names)]
        with suppress(RefusedError):
            if act == "expire":
                self.run(expire_override(self.databases, OverrideId(name)))
            else:
                request = self.request()
                for _ in range(1 + twice):
                    self.run(
                        change(self.databases, act, name=name, by=MINUTE / 2, request_id=request)
                    )
        if is_copied:
            self.copy(name)

    def copy(self, name: str) -> None:
        override = self.run(read_override(self.databases, OverrideId(name)))
        if override.activated_at is not None:
            self.run(copy_override(self.databases, override.scope.region, override))


def test_every_invariant_holds_with_every_kind_of_override(copies: Copies, template: str) -> None:
    built = furnished(copies, template, build_with_people)
    run_state_machine_as_test(
        cast(Any, lambda: WithOverrides(copies.lend(built))),
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
