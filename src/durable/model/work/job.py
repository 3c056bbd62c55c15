"""What a job adds to a workload: how much of it must be done, how much at once, and until when."""

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field, model_validator

from durable.validation.problems import Finding, refuse
from durable.validation.quantities import Duration
from durable.validation.value import Value

# A placement's memory has to fit into one message of Temporal's, which is 2 MB at most.
MAX_REPLICAS = 4_000
MAX_FAILURES = 1_000_000
MAX_EXIT_CODE = 255
# What a shell reports for a process that a signal has ended.
SIGNAL_CODES = range(129, 193)

_ALLOWED_CODES = "1 to 128 and 193 to 255; those between mean that a signal has ended it"


class Job(Value):
    """How a job is run to its end; a service has none of this."""

    # How many slots must complete; `replicas` is the same number.
    completions: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    # How many slots may have a node at once; all of them if it is not given.
    parallelism: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | None = None
    # So many failures of all slots together end the job; of one slot, `max_attempts` do.
    max_failures: Annotated[int, Field(ge=1, le=MAX_FAILURES)] | None = None
    # From its admission; a job that is late goes on, and says so.
    deadline: Duration | None = None
    # How long it is listed after its end.
    ttl_after_finished: Duration | None = None
    # A replica that ends with one of these is given up at once.
    fatal_exit_codes: Annotated[tuple[int, ...], Field(max_length=MAX_EXIT_CODE)] = ()

    @model_validator(mode="after")
    def _name_exit_codes_that_can_be_seen(self) -> Self:
        refuse("Job", self._wrong_codes())
        return self

    def _wrong_codes(self) -> Iterator[Finding]:
        seen: dict[int, int] = {}
        for index, code in enumerate(self.fatal_exit_codes):
            at = ("fatal_exit_codes", index)
            if not 1 <= code <= MAX_EXIT_CODE or code in SIGNAL_CODES:
                yield Finding(at, code, f"got {code}; allowed: {_ALLOWED_CODES}")
            elif code in seen:
                first = f"first at fatal_exit_codes[{seen[code]}]"
                yield Finding(at, code, f"got {code} again, {first}; allowed: every code once")
            seen.setdefault(code, index)
