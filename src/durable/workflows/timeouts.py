"""Every timeout and retry policy of the workflows, by name."""

from datetime import timedelta

from temporalio.common import RetryPolicy

from durable.model.time_left import TimeLeft

# A step talks to Postgres, whose own limits are below this; a step that is refused is not an error.
STEP = timedelta(seconds=30)
STEP_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    backoff_coefficient=3.0,
    maximum_interval=timedelta(seconds=2),
    maximum_attempts=3,
    # A database that is known not to answer: a step must not keep a task's slot to ask again.
    non_retryable_error_types=["CircuitOpenError"],
)

# An apply is answered: it waits through a restart of the database, not for ever.
ADMIT_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=2),
    maximum_attempts=8,
)

# The sender of a message to a placement waits for it to be judged, and everything else there too.
AUTHORIZE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=1),
    maximum_attempts=3,
    non_retryable_error_types=["CircuitOpenError"],
)

# A workload that was started and never applied to ends by itself.
FIRST_APPLY = timedelta(minutes=2)
# While there is nothing to look after, the authority is asked so often whether there is by now.
UNORDERED_LOOK = timedelta(seconds=15)

# An authority that does not answer is tried again after 3, 6, 12 ... seconds, for as long as that
# takes; a placement waits up to half as long again, so that a thousand do not come together.
UNREACHABLE_RETRY = timedelta(seconds=3)
UNREACHABLE_LONGEST = timedelta(seconds=15)

# A node whose lease lapsed may still come back; after this its slots are placed elsewhere.
UNKNOWN_TIMEOUT = timedelta(seconds=30)
# In a fenced region it is its recovery that places them elsewhere; after this they are asked again.
FENCED_RETRY = timedelta(minutes=2)

# How long a node may take to stop a slot before we check whether it is lost.
STOP_TIMEOUT = timedelta(minutes=1)

# How long to wait before a message is written into the audit again.
AUDIT_RETRY = timedelta(seconds=30)

# How long an answer waits for its message to be in the audit.
AUDIT_PATIENCE = timedelta(seconds=5)

# A replica that failed is started again after 1, 2, 4 ... seconds, up to this.
CRASH_FIRST = timedelta(seconds=1)
CRASH_LONGEST = timedelta(minutes=5)
# A replica that has served for this long starts with no crashes counted.
CRASHES_FORGOTTEN = timedelta(minutes=10)

# A region that cannot use its part of a job's parallelism for so long gives it to another.
UNUSED_PART = timedelta(seconds=30)

# How often to ask again whether a deadline has passed, when the authority says that it has not.
DEADLINE_RETRY = timedelta(seconds=5)

# Lower bound on a rest, so that an overdue deadline does not spin the loop.
SHORTEST_REST = timedelta(milliseconds=100)

# How long to wait before the claims are read after a refusal.
CLAIMS_RETRY = timedelta(seconds=5)

# What a workload waits for, such as an old claim's end, is tried again after 1, 2, 4 ... seconds.
DIVIDE_FIRST = timedelta(seconds=1)
DIVIDE_LONGEST = timedelta(seconds=30)

# A drain looks what is left after 1, 2, 4 ... seconds, for as long as nothing changes.
DRAIN_FIRST = timedelta(seconds=1)
DRAIN_LONGEST = timedelta(seconds=15)

# An override tells a region that could not be reached after so long again, and looks so often
# whether a region has come that does not know of it.
REGION_RETRY = timedelta(seconds=10)
OVERRIDE_RESYNC = timedelta(minutes=5)
# A policy that is on its way is looked at so often; one that waits for a person, much less. Each
# look fills the history, and a reader of the page of a run that is over cannot answer there.
POLICY_LOOK = timedelta(seconds=5)
POLICY_IDLE = timedelta(minutes=10)
# A guardrail goes on watching what was paused in a region, ever less often up to this.
POLICY_PAUSED_LONGEST = timedelta(minutes=2)
# Making the recent decisions of every region again.
SHADOW = timedelta(minutes=5)

# A recovery is looked at at least so often; while it moves work, every second.
RECOVERY_LOOK = timedelta(seconds=15)

# A restarted worker replays what is open, half a millisecond for each event: short runs keep that
# cheap, and cost a read of the authority each.
EVENTS_PER_RUN = 250


def outage_wait(tries: int) -> timedelta:
    """How long to wait for an authority that did not answer for the first, second ... time."""
    return min(UNREACHABLE_LONGEST, UNREACHABLE_RETRY * 2 ** min(max(tries - 1, 0), 10))


def rest_for(left: TimeLeft | None, longest: timedelta) -> timedelta:
    """How long to rest before what is due: as much as was left of it by the clock that decides."""
    if left is None:
        return longest
    return min(longest, max(timedelta(seconds=left.seconds), SHORTEST_REST))
