"""Points where a test can kill the process or lose an answer.

`DURABLE_FAILPOINTS=after_reserve=kill:/tmp/once` kills this process with SIGKILL at that point, but
only once: the file is created first, and the point does nothing while it exists. `lose` instead of
`kill` raises, as if the answer to what was just committed had been lost.
"""

import os
import signal
from enum import StrEnum
from pathlib import Path

VARIABLE = "DURABLE_FAILPOINTS"


class Failpoint(StrEnum):
    # the workload's admission
    BEFORE_ADMIT_WORKLOAD = "before_admit_workload"
    AFTER_ADMIT_WORKLOAD = "after_admit_workload"
    AFTER_ASSIGN_SLOTS = "after_assign_slots"
    AFTER_PUBLISH_SHARES = "after_publish_shares"
    AFTER_OPEN_PLACEMENTS = "after_open_placements"
    AFTER_BEGIN_ROLLBACK = "after_begin_rollback"
    # one placement's path
    BEFORE_ENQUEUE = "before_enqueue"
    AFTER_ENQUEUE = "after_enqueue"
    AFTER_DECISION = "after_decision"
    AFTER_RESERVE = "after_reserve"
    AFTER_BIND = "after_bind"
    BEFORE_START = "before_start"
    AFTER_START = "after_start"
    AFTER_EVICT = "after_evict"
    AFTER_RELEASE = "after_release"
    # a drain
    AFTER_CORDON = "after_cordon"
    AFTER_MARK = "after_mark"
    AFTER_END_DRAIN = "after_end_drain"
    # an override
    AFTER_PROPOSE_OVERRIDE = "after_propose_override"
    AFTER_CHANGE_OVERRIDE = "after_change_override"
    AFTER_COPY_OVERRIDE = "after_copy_override"
    # inside the transaction of such a step: what it changes is written, and not audited yet
    BEFORE_AUDIT_PROPOSAL = "before_audit_proposal"
    BEFORE_AUDIT_CHANGE = "before_audit_change"
    BEFORE_AUDIT_COPY = "before_audit_copy"
    BEFORE_AUDIT_COPY_CHANGE = "before_audit_copy_change"
    # a policy
    AFTER_POLICY_ORDER = "after_policy_order"
    AFTER_ENTER_REGION = "after_enter_region"
    AFTER_LEAVE_REGION = "after_leave_region"
    # a recovery
    AFTER_RECOVERY_ORDER = "after_recovery_order"
    AFTER_FENCE = "after_fence"
    AFTER_DRAW_BUDGETS = "after_draw_budgets"
    AFTER_MOVE_OUT = "after_move_out"
    AFTER_RELEASE_FENCED = "after_release_fenced"
    AFTER_REOPEN = "after_reopen"
    AFTER_MOVE_BACK = "after_move_back"
    AFTER_END_DRAWS = "after_end_draws"
    # the agent
    BEFORE_SPAWN = "before_spawn"
    AFTER_SPAWN = "after_spawn"
    BEFORE_OBSERVE = "before_observe"
    AFTER_OBSERVE = "after_observe"
    AFTER_REGISTER = "after_register"


class AnswerLostError(TimeoutError):
    """Raised by a failpoint in place of an answer that was lost after the commit."""


def reach(point: Failpoint) -> None:
    """Does nothing unless the environment arms this point."""
    armed = os.environ.get(VARIABLE)
    if armed:
        _fire(point, armed)


def _fire(point: Failpoint, armed: str) -> None:
    for entry in armed.split(","):
        name, _, action = entry.partition("=")
        if name != point:
            continue
        kind, _, once = action.partition(":")
        if once:
            try:
                Path(once).touch(exist_ok=False)
            except FileExistsError:
                continue
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise AnswerLostError(f"the answer was lost at {point}")
