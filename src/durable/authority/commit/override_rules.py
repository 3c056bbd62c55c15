"""What overrides forbid or let pass at commit, by the clock that was read after the lock.

An override that has expired or was revoked while the commit waited for the lock has no effect.
"""

from durable.authority.commit.ledger import DrawEntry, Ledger
from durable.model.overrides.effects import Gate
from durable.model.overrides.in_force import (
    RegionalOverride,
    concerning,
    holder,
    keeps_off,
    skipped_gates,
    skipping_only,
)
from durable.model.placement.intents import Refused
from durable.model.refusal import Refusal, RefusalCode
from durable.model.resources import Amounts, at_most, plus

Overrides = tuple[RegionalOverride, ...]


def overrides_for(ledger: Ledger, tenant: str, workload: str) -> Overrides:
    """Those that are in force now and mean this workload.

    They let pass what the policy that is in force now lists, whatever it listed when they were
    approved.
    """
    if not ledger.overrides:
        return ()
    found = concerning(ledger.overrides, tenant, workload, ledger.now)
    return skipping_only(found, ledger.overridable_gates)


def hold_refuses(overrides: Overrides, tenant: str, workload: str) -> Refused | None:
    """Whether nothing of the workload may be placed."""
    held = holder(overrides)
    if held is None:
        return None
    return _refused(
        RefusalCode.HELD,
        f"{tenant}/{workload} is held by {held}; wait until it ends, or revoke it.",
    )


def place_avoided(overrides: Overrides, zone: str, node: str) -> Refused | None:
    """Whether the workload may not be placed on this node."""
    off = keeps_off(overrides, zone, node)
    if off is None:
        return None
    return _refused(
        RefusalCode.AVOIDED, f"Node {node} in {zone} is closed by {off}; choose another node."
    )


def skips_cordon(overrides: Overrides) -> bool:
    return Gate.CORDON in skipped_gates(overrides)


def open_draw(ledger: Ledger, tenant: str, wants: Amounts) -> DrawEntry | None:
    """An emergency draw of the tenant that is in force and has room for this."""
    for name in sorted(ledger.draws):
        draw = ledger.draws[name]
        has_room = at_most(plus(draw.used, wants), draw.amount)
        if draw.tenant == tenant and draw.is_open(ledger.now) and has_room:
            return draw
    return None


def _refused(code: RefusalCode, sentence: str) -> Refused:
    return Refused(refusal=Refusal(code=code, sentence=sentence))
