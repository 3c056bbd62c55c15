"""In which order missing workflows are started, and what one that cannot be started keeps."""

from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from durable.authority.db.connection import Databases
from durable.controllers.reconciler import KINDS, Reconciler, UnmanagedWorkflows, WorkflowStart


class Starts:
    """A client that starts nothing, and refuses one id."""

    def __init__(self, refused: str) -> None:
        self.ids: list[str] = []
        self._refused = refused

    async def start_workflow(self, kind: str, *, args: list[Any], id: str, **_: Any) -> None:
        self.ids.append(id)
        if id == self._refused:
            raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")


async def test_a_start_that_fails_stops_no_other_and_is_raised_in_the_end() -> None:
    ids = [f"workload/risk/{number}" for number in range(20)]
    starts = {id: WorkflowStart("Workload", {"id": id}) for id in ids}
    client = Starts(refused=ids[3])
    reconciler = Reconciler(cast(Client, client), cast(Databases, None))
    with pytest.raises(RPCError):
        await reconciler.start(UnmanagedWorkflows(starts))
    assert client.ids == ids, "each once, in order"


def test_recoveries_are_started_first() -> None:
    assert next(read.__name__ for read in KINDS) == "_recoveries"
