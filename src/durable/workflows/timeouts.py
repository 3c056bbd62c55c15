"""Every timeout and retry policy of the workflows, by name."""

from datetime import timedelta

from temporalio.common import RetryPolicy

# A step talks to Postgres, whose own limits are below this; a step that is refused is not an error.
STEP = timedelta(seconds=30)
STEP_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    backoff_coefficient=3.0,
    maximum_interval=timedelta(seconds=2),
    maximum_attempts=3,
)

# An apply is answered: it waits through a restart of the database, not for ever.
ADMIT_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=2),
    maximum_attempts=8,
)

# A workload that was started and never applied to ends by itself.
FIRST_APPLY = timedelta(minutes=2)

# While the authority is away a placement asks again after so long, for as long as it takes.
UNREACHABLE_RETRY = timedelta(seconds=3)

# A node whose lease lapsed may still come back; after this its slots are placed elsewhere.
UNKNOWN_TIMEOUT = timedelta(seconds=30)

# A node that was asked to stop something has so long before it is taken for lost, if it is.
STOP_TIMEOUT = timedelta(minutes=1)

# A rejected message that could not be put into the audit is tried again after so long.
AUDIT_RETRY = timedelta(seconds=30)

# A replica that failed is started again after 1, 2, 4 ... seconds, up to this.
CRASH_FIRST = timedelta(seconds=1)
CRASH_LONGEST = timedelta(minutes=5)
# What has served for so long begins anew when it fails.
CRASHES_FORGOTTEN = timedelta(minutes=10)

# A moment that has passed while nothing could be done about it is not looked at more often.
SHORTEST_REST = timedelta(milliseconds=100)

# Slots that wait for something only the authority can tell are asked about again after so long.
CLAIMS_RETRY = timedelta(seconds=5)

# What a workload waits for, such as an old claim's end, is looked at again after 1, 2, 4 ...
DIVIDE_FIRST = timedelta(seconds=1)
DIVIDE_LONGEST = timedelta(seconds=30)

# Well below the 10,000 signals and 51,200 events that a run may have.
MESSAGES_PER_RUN = 2_000

# How long a worker may be silent before another takes its workflow task.
WORKFLOW_TASK = timedelta(seconds=5)
