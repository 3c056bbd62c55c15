"""A new object that carries a person's order is one message, one step, one page and one row.

Everything else it has from the skeleton: it survives a worker that is killed in the middle of the
order, a request that is sent twice, and a termination.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.rows import class_row
from sqlalchemy import text
from temporalio import activity, workflow
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from durable.activities.failures import refusal_failure
from durable.activities.messages import AuditMessages, write_messages
from durable.authority.audit.chain import GLOBAL_CHAIN, append
from durable.authority.audit.events import read_events
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.operators.ledger import RequestLedger
from durable.model.operators.rights import OperatorMessage, OrderAnswer, Scope, Verb
from durable.model.refusal import RefusedError
from durable.resources.resource import Filters, Resource, Rows, Sources
from durable.settings import Settings
from durable.signals import search_attributes
from durable.signals.payloads import Look, OperatorRequest
from durable.signals.registry import Message, Sender
from durable.temporal.connection import connect
from durable.temporal.sandbox import sandbox
from durable.temporal.worker import patient
from durable.validation.value import Value
from durable.workflows.handlers import accepts
from durable.workflows.inbox import Envelope
from durable.workflows.orders import Memory, OrderWorkflow
from durable.workflows.steps import UNREACHABLE
from tests.workflows.plane import Plane, until
from tests.workflows.processes import environment_of

QUEUE, ID = "lamps", "lamp/hall"
WHO = {"actor": "alice@example.com", "reason": "INC-42"}
ORDER = {**WHO, "request_id": "INC-42-1", "hours": 1_000}
SCHEMA = """
    CREATE TABLE lamps (lamp text PRIMARY KEY, hours int, burned int DEFAULT 0, actor text);
    GRANT ALL ON lamps TO durable_workload
"""

# ── the object ──────────────────────────────────────────────────────────────────────────────────


class LightLamp(OperatorRequest):
    """Have it burn for so many hours."""

    hours: int


MESSAGES = (
    Message(
        "light",
        "Lamp",
        LightLamp,
        "Light the lamp.",
        verb=Verb.RETRY,
        example=ORDER,
    ),
    Message("look", "Lamp", Look, "Look.", Sender.CONTROLLER),
)


class LampRow(Value):
    lamp: str
    hours: int
    burned: int
    actor: str


def lamps_in(connection: psycopg.Connection[Any]) -> list[LampRow]:
    rows = connection.cursor(row_factory=class_row(LampRow)).execute("SELECT * FROM lamps")
    return rows.fetchall()


LIGHT = text("""
    INSERT INTO lamps VALUES (:lamp, :hours, 0, :actor)
        ON CONFLICT (lamp) DO UPDATE SET hours = excluded.hours
    RETURNING *
""")


@global_transaction("durable_workload", "light {message.workflow_id}")
async def light(connection: AsyncConnection, message: OperatorMessage) -> OrderAnswer[LampRow]:
    """Recall the request, then rights, then the change, then the answer."""
    ledger = await RequestLedger.read(connection, [message])
    sentence = ledger.repeat(message)
    if sentence is not None:
        row = (await connection.execute(text("SELECT * FROM lamps"))).mappings().one()
        return OrderAnswer(target=LampRow.read(dict(row)), sentence=sentence)
    await authorize(connection, message, Verb.RETRY, Scope())
    hours = message.payload_as(LightLamp).hours
    given = {"lamp": message.workflow_id, "hours": hours, "actor": message.actor}
    row = (await connection.execute(LIGHT, given)).mappings().one()
    sentence = f"It burns for {hours} h."
    await append(
        connection, GLOBAL_CHAIN, actor=message.actor, action="accept message light", target=ID
    )
    ledger.record(message, {"answer": sentence})
    await ledger.write(connection)
    return OrderAnswer(target=LampRow.read(dict(row)), sentence=sentence)


class LampActivities:
    """Its table, and the audit; each step is one transaction that may be repeated."""

    def __init__(self, databases: Databases, dies_once: str | None = None) -> None:
        self._databases, self._dies_once = databases, dies_once

    def _query(self, lamp: str, statement: LiteralString, **given: Any) -> LampRow | None:
        with psycopg.connect(self._databases.urls[0]) as connection:
            connection.execute(statement, {"lamp": lamp, **given})
            return next((row for row in lamps_in(connection) if row.lamp == lamp), None)

    @activity.defn
    async def recall_lamp(self, lamp: str) -> LampRow | None:
        return self._query(lamp, "SELECT 1")

    @activity.defn
    async def light_lamp(self, message: OperatorMessage) -> OrderAnswer[LampRow]:
        try:
            lit = await light(self._databases, message)
        except RefusedError as error:
            raise refusal_failure(error) from error
        self._die_once()
        return lit

    def _die_once(self) -> None:
        if self._dies_once is not None and not Path(self._dies_once).exists():
            Path(self._dies_once).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    @activity.defn
    async def burn(self, lamp: str) -> LampRow | None:
        return self._query(
            lamp, "UPDATE lamps SET burned = burned + 1 WHERE lamp = %(lamp)s AND burned < hours"
        )

    @activity.defn
    async def audit(self, step: AuditMessages) -> None:
        await write_messages(self._databases, GLOBAL_CHAIN, step)

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.recall_lamp, self.light_lamp, self.burn, self.audit)


@dataclass
class LampMemory(Memory):
    lamp: LampRow | None = None


@workflow.defn(name="Lamp")
@accepts(MESSAGES)
class Lamp(OrderWorkflow[str, LampMemory]):
    memory = LampMemory
    first_order = "a person sends `light`"

    def key_of(self, id: str) -> str:
        return id

    async def recall(self) -> bool:
        lamp = await self.step(LampActivities.recall_lamp, self._key, "read the lamp")
        if lamp is UNREACHABLE:
            return False
        self._memory.lamp = lamp
        return True

    @property
    def is_ordered(self) -> bool:
        return self._memory.lamp is not None

    @property
    def has_ended(self) -> bool:
        lamp = self._memory.lamp
        return lamp is not None and lamp.burned >= lamp.hours

    async def on_light(self, envelope: Envelope[LightLamp]) -> str:
        lit = await self.ask(LampActivities.light_lamp, envelope.request_message, "light it")
        self._memory.lamp = lit.target
        return lit.sentence

    async def advance(self) -> None:
        lamp = await self.step(LampActivities.burn, self._key, "burn on")
        if lamp is not UNREACHABLE:
            self._memory.lamp = lamp

    @workflow.query(name="status")
    def status(self) -> dict[str, Any]:
        return {"lamp": self._memory.lamp, **self._memory.shown()}

    def page(self, request_id: str) -> str:
        return f"## {self._key}\n\n**{'out' if self.has_ended else 'burns'}**"

    def attributes(self) -> dict[SearchAttributeKey[str], str | None]:
        return {search_attributes.PHASE: "out" if self.has_ended else "burning"}

    def rest(self) -> tuple[timedelta, str]:
        return timedelta(seconds=1), "an hour to pass"


async def read_lamps(sources: Sources, filters: Filters) -> Rows[LampRow]:
    with psycopg.connect(sources.databases.urls[0]) as connection:
        return Rows(lamps_in(connection))


LAMPS = Resource[LampRow](
    name="lamps",
    singular="lamp",
    sentence="List lamps.",
    read=read_lamps,
    columns=("lamp", "hours", "burned", ("By", lambda row: row.actor)),
    remedy="light one",
    has_ended=lambda row: row.burned >= row.hours,
)


# ── its worker, as a process that a test can kill ───────────────────────────────────────────────


async def main(dies_once: str | None = None) -> None:
    settings = Settings.from_environment(os.environ)
    client = await connect(settings, settings.require_temporal_address())
    async with Databases(settings.require_database_url(), {}) as databases:
        lamps = LampActivities(databases, dies_once)
        await patient(
            Worker(
                client,
                task_queue=QUEUE,
                workflows=[Lamp],
                activities=lamps.all,
                workflow_runner=sandbox(),
                sticky_queue_schedule_to_start_timeout=timedelta(seconds=3),
            )
        ).run()


@contextmanager
def worker(plane: Plane, *arguments: str) -> Generator["subprocess.Popen[bytes]"]:
    environment = {**os.environ, **environment_of(plane.settings)}
    # Not as the main module, which the sandbox of workflows could not import.
    code = f"import asyncio, sys, {__name__} as it; asyncio.run(it.main(*sys.argv[1:]))"
    running = subprocess.Popen([sys.executable, "-c", code, *arguments], env=environment)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


async def start(plane: Plane) -> Any:
    return await plane.durable.client.start_workflow(
        "Lamp",
        id=ID,
        task_queue=QUEUE,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        task_timeout=timedelta(seconds=5),
    )


async def is_read(handle: Any) -> bool:
    status = await handle.query("status")
    return status["lamp"] is not None and status["lamp"]["hours"] == 1_000


def requests(plane: Plane) -> int:
    with psycopg.connect(plane.databases.urls[0]) as connection:
        [count] = connection.execute(
            "SELECT count(*) FROM global.operator_requests WHERE target = %s", [ID]
        ).fetchone() or (0,)
        return count


@pytest.fixture
async def lamps(plane: Plane) -> Plane:
    with psycopg.connect(plane.databases.urls[0]) as owner:
        owner.execute(SCHEMA)
    return plane


async def test_a_small_object_survives_a_kill_a_repeated_request_and_a_termination(
    lamps: Plane, tmp_path: Path
) -> None:
    handle = await start(lamps)
    with worker(lamps, str(tmp_path / "died")) as first:
        # It dies when the order is taken, and before anything else knows.
        asked = asyncio.create_task(handle.execute_update("light", ORDER))
        assert await asyncio.to_thread(first.wait, 120) == -signal.SIGKILL
    with worker(lamps):
        assert await asked == "It burns for 1000 h."
        assert requests(lamps) == 1

        again = await handle.execute_update("light", ORDER)
        assert again == "It burns for 1000 h."
        with pytest.raises(WorkflowUpdateFailedError) as other:
            await handle.execute_update("light", {**ORDER, "hours": 7})
        assert isinstance(other.value.cause, ApplicationError)
        assert other.value.cause.details == ("key_conflict",)
        assert requests(lamps) == 1

    await handle.terminate()
    [row] = await lamps.durable.get(LAMPS)
    assert (row.lamp, row.hours, row.actor) == (ID, 1_000, "alice@example.com")

    # As the reconciler starts what the authority knows: without a word of what it is.
    handle = await start(lamps)
    with worker(lamps):
        await until(lambda: is_read(handle), "it was read from the authority")
        less = {**ORDER, "request_id": "INC-42-2", "hours": 1}
        assert await handle.execute_update("light", less) == "It burns for 1 h."
        ended = await handle.result()
        page = await handle.query("__temporal_workflow_metadata")
    assert ended["lamp"]["burned"] >= 1
    assert "**out**" in page.current_details
    shown = await lamps.durable.show(LAMPS, ID)
    assert LAMPS.has_ended(shown)
    assert requests(lamps) == 2
    events, _ = await read_events(lamps.databases, target=ID)
    taken = [event.action for event in events]
    assert taken.count("accept message light") == 2
    assert taken.count("reject message light") == 1


async def test_one_that_nobody_orders_ends_when_its_first_message_is_refused(lamps: Plane) -> None:
    handle = await start(lamps)
    with worker(lamps):
        with pytest.raises(WorkflowUpdateFailedError, match="failed"):
            await handle.execute_update("light", {**ORDER, "hours": "many"})
        ended = await handle.result()
    assert ended["lamp"] is None
    assert ended["rejected_count"] == 1
    assert len(await lamps.durable.get(LAMPS)) == 0
