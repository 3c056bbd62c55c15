"""What a workflow is started with: anyone may write that by hand, and is refused in words.

A wrong input fails the workflow, and its id can be used again. Where it would fail the workflow
task instead, the task is tried again and again, and the id stays taken.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.model.refusal import RefusalCode
    from durable.validation.problems import in_one_line, problems_in
    from durable.validation.value import Value
    from durable.workflows.failures import refusal
    from durable.workflows.inbox import json_of

T = TypeVar("T")
V = TypeVar("V", bound=Value)

# The input of a workflow that is started without any; the SDK leaves `RawValue | None` unread.
NO_INPUT = cast(RawValue, None)
# And of one that is started with several, which is none that could be read.
SEVERAL_INPUTS = RawValue(Payload(metadata={"encoding": b"several arguments"}))
MAX_PROBLEMS_SHOWN = 250


def read_start(raw: RawValue | None, model: type[V], id_of: Callable[[V], str], example: str) -> V:
    """What a person starts it with; refused if that is wrong, or belongs under another id.

    Messages are signed for a workflow id, so the id decides what they are about.
    """
    try:
        start = model.read_json(json_of(raw))
    except ValidationError as error:
        problems = in_one_line(problems_in(error, model))[:MAX_PROBLEMS_SHOWN]
        sentence = f"Invalid input: {problems}. Start it with {example}."
        raise refusal(RefusalCode.INVALID, sentence) from None
    except ApplicationError as error:
        sentence = f"{error.message} Start it with {example}."
        raise refusal(RefusalCode.INVALID, sentence) from None
    workflow_id = workflow.info().workflow_id
    if workflow_id != id_of(start):
        sentence = (
            f"{workflow_id[:100]} is not the workflow of its input; start it as {id_of(start)}."
        )
        raise refusal(RefusalCode.INVALID, sentence)
    return start


def of_one_input(method: Callable[..., T]) -> Callable[..., T]:
    """`__init__` or `run` of a workflow, which must not fail over several arguments.

    The SDK calls it with as many as were sent, and its failure would fail the workflow task.
    """

    @wraps(method)
    def call(self: Any, raw: RawValue = NO_INPUT, *more: object) -> T:
        return method(self, SEVERAL_INPUTS if more else raw)

    return call


def start_or_refusal(read: Callable[[], T], otherwise: T) -> tuple[T, ApplicationError | None]:
    """For `__init__`, where a refusal would fail the workflow task; `run` raises it."""
    try:
        return read(), None
    except ApplicationError as refused:
        return otherwise, refused
