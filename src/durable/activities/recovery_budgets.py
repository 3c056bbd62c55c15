"""The budgets of a recovery: opened in healthy regions, closed at its end, and what it left."""

from collections.abc import Iterable, Mapping

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import Answers, ask_regions
from durable.authority.fleet.policies import read_recovery_policy
from durable.authority.quota.budgets import (
    close_budget,
    list_budgets,
    list_open_budgets,
    open_budget,
)
from durable.authority.recovery.leftovers import read_left_overrides
from durable.authority.recovery.moved_slots import void_moved
from durable.authority.recovery.recoveries import note, read_moves, recovery_of_incident
from durable.authority.recovery.region_facts import read_facts
from durable.failpoints import Failpoint, reach
from durable.model.fleet.capacity import RecoveryBudget
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import IncidentId, RegionId
from durable.model.recovery.recoveries import BudgetDraw, Recovery
from durable.model.refusal import RefusedError
from durable.model.states import RegionState
from durable.planners.recovery.moves import may_take_over
from durable.signals.names import RECOVERY_CONTROLLER

ACTOR = RECOVERY_CONTROLLER


class RecoveryBudgets:
    """Draws on what other regions keep for recovery."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    async def is_undrawn(self, recovery: Recovery) -> bool:
        """Whether a healthy region has a budget that is not open for it, and was not refused."""
        refused = {(draw.region, draw.budget) for draw in recovery.draws if draw.refused}
        return any(
            budget.incident != recovery.key.incident
            and (budget.region, budget.budget) not in refused
            for budget in await self._list(recovery, await read_facts(self._databases))
        )

    async def _list(
        self, recovery: Recovery, facts: Mapping[RegionId, RegionFact]
    ) -> list[RecoveryBudget]:
        """The budgets of healthy regions that it may draw on."""
        healthy = [one for one, fact in facts.items() if fact.state is RegionState.OPEN]
        found = await ask_regions(healthy, lambda one: list_budgets(self._databases, one))
        return [
            budget
            for _, some in sorted(found.by_region.items())
            for budget in some
            if budget.incident == recovery.key.incident or budget.override is None
        ]

    async def draw(self, recovery: Recovery) -> Recovery:
        """Opens the budgets of healthy regions; one that is another recovery's stays its."""
        facts = await read_facts(self._databases)
        before = recovery.draws
        budgets = await self._list(recovery, facts)
        draws = {(one.region, one.budget): one for one in before}
        for one in budgets:
            draws.setdefault(
                (one.region, one.budget), BudgetDraw(region=one.region, budget=one.budget)
            )
        # First, so that its end waits for a region that falls silent while it is asked.
        recovery = await self._note(recovery, draws.values())
        for budget in budgets:
            try:
                refused = await self._open(budget, recovery)
            except AuthorityError:
                continue
            draw = BudgetDraw(region=budget.region, budget=budget.budget, refused=refused)
            draws[budget.region, budget.budget] = draw
        recovery = await self._note(recovery, draws.values())
        if recovery.draws != before:
            reach(Failpoint.AFTER_DRAW_BUDGETS)
        return recovery

    async def _note(self, recovery: Recovery, draws: Iterable[BudgetDraw]) -> Recovery:
        noted = recovery.model_copy(update={"draws": tuple(draws)})
        if noted.draws != recovery.draws:
            await note(self._databases, noted)
        return noted

    async def _open(self, budget: RecoveryBudget, recovery: Recovery) -> str:
        """Why not, or nothing; what another recovery has no need of any more is closed first."""
        incident = recovery.key.incident
        if budget.incident == incident:
            return ""
        try:
            if budget.incident is not None and await self._gives_way(budget.incident, recovery):
                await self._close(budget, budget.incident)
            await open_budget(
                self._databases, budget.region, budget.budget, incident=incident, actor=ACTOR
            )
        except RefusedError as error:
            return error.refusal.sentence
        return ""

    async def _gives_way(self, incident: IncidentId, recovery: Recovery) -> bool:
        """Whether a budget that is open for this incident goes to the recovery."""
        holder = await recovery_of_incident(self._databases, incident)
        if holder is None or holder.has_ended:
            return holder is not None
        ours = await read_moves(self._databases, recovery.key)
        theirs = await read_moves(self._databases, holder.key)
        return may_take_over(ours, theirs, await read_recovery_policy(self._databases))

    async def _close(self, budget: RecoveryBudget, incident: IncidentId) -> None:
        await close_budget(
            self._databases, budget.region, budget.budget, incident=incident, actor=ACTOR
        )

    async def close(self, recovery: Recovery) -> None:
        """Closes what is open for it in any region; again is harmless."""
        found = await self._find_open(recovery)
        for budget in (one for some in found.by_region.values() for one in some):
            try:
                await self._close(budget, recovery.key.incident)
            except (AuthorityError, RefusedError):
                continue  # it is found again

    async def find_open(self, recovery: Recovery) -> list[str]:
        """What is open for it, or may be, in sentences: a recovery does not end before."""
        found = await self._find_open(recovery)
        drawn = sorted({draw.region for draw in recovery.draws}.intersection(found.unreachable))
        return [
            *(
                f"Budget {one.budget} of {one.region} is still open."
                for some in found.by_region.values()
                for one in some
            ),
            *(
                f"The budgets of {one} could not be checked: {found.unreachable[one]}"
                for one in drawn
            ),
        ]

    async def _find_open(self, recovery: Recovery) -> Answers[list[RecoveryBudget]]:
        """What is open for it in each region, however that was noted; overrides end their own."""

        async def read(region: RegionId) -> list[RecoveryBudget]:
            found = await list_open_budgets(self._databases, region, recovery.key.incident)
            return [one for one in found if one.override is None]

        return await ask_regions(await read_facts(self._databases), read)

    async def find_leftovers(self, recovery: Recovery) -> list[str]:
        """What must not be there when a recovery has ended, in sentences."""
        region = recovery.region
        findings = await read_left_overrides(self._databases, recovery)
        try:
            claimed = await void_moved(self._databases, region)
        except AuthorityError:
            findings.append(f"{region} does not answer: its old claims could not be checked.")
        else:
            if claimed:
                findings.append(
                    f"{claimed} claims of {region} are of slots that other regions own; they are "
                    "being stopped."
                )
        findings += await self.find_open(recovery)
        regions = sorted({draw.region for draw in recovery.draws})
        budgets = await ask_regions(regions, lambda one: list_budgets(self._databases, one))
        findings += [
            f"{budget.used} of budget {budget.budget} of {one} stay drawn until what was moved is "
            "replaced: `durable replace`."
            for one, found in budgets.by_region.items()
            for budget in found
            if any(budget.used.amounts)
        ]
        return findings
