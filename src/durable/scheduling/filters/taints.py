"""A taint keeps work off a node unless the work tolerates it."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from durable.model.fleet.labels import TaintEffect
from durable.model.overrides.effects import Gate
from durable.model.placement.pending_reasons import PendingCode
from durable.model.work.workload import Toleration
from durable.scheduling.filters.filter import Filter, count_by_id
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.snapshot.region import TaintSet
from durable.scheduling.working_set import RowSelection, WorkingSet

_EFFECT = TaintEffect.NO_SCHEDULE


def tolerates(tolerations: Sequence[Toleration], taint: tuple[str, str, str]) -> bool:
    """Whether any toleration names the taint; one without a value or an effect names any."""
    key, value, effect = taint
    return any(
        toleration.key == key
        and toleration.value in (None, value)
        and toleration.effect in (None, effect)
        for toleration in tolerations
    )


def not_tolerated(
    taints: TaintSet, tolerations: Sequence[Toleration], effect: TaintEffect
) -> list[tuple[str, str, str]]:
    return [taint for taint in taints if taint[2] == effect and not tolerates(tolerations, taint)]


def _is_tainted(working: WorkingSet, rows: RowSelection) -> Mask | None:
    if Gate.TAINTS in working.skips:
        return None
    tolerations = working.request.spec.tolerations
    keeps_out = working.snapshot.taint_sets.derived(
        (_EFFECT, tolerations),
        lambda taints: bool(not_tolerated(taints, tolerations, _EFFECT)),
        np.bool_,
    )
    return keeps_out[working.columns.taint_set[rows]]


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    taint_sets = working.snapshot.taint_sets.values
    tolerations = working.request.spec.tolerations

    def first_taint(id: int) -> str:
        key, value, _effect = not_tolerated(taint_sets[id], tolerations, _EFFECT)[0]
        return f"taint {key}={value}"

    return count_by_id(working.columns.taint_set[rows], first_taint)


TAINTS = Filter("taint", PendingCode.TAINTED, _is_tainted, _words)
