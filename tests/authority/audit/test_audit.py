"""The audit is append-only, and whoever got around that is found out."""

import ast
import asyncio
from itertools import product
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

import durable.authority
from durable.authority.audit import chain as audit
from durable.authority.audit.chain import ChainHead, ChainReport, verify, verify_all
from durable.authority.audit.events import read_events
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.roles import ROLES
from durable.authority.db.transaction import global_transaction
from tests.authority.touched import touching
from tests.authority.world import World

CHAIN = "us-east"


@global_transaction("durable_operator", "append")
async def append_event(connection: AsyncConnection, action: str, *, fails: bool = False) -> None:
    await audit.append(
        connection, CHAIN, actor="alice", action=action, target="node/n1", after={"is": "ü"}
    )
    if fails:
        raise ZeroDivisionError


async def append_events(world: World, count: int = 5) -> Databases:
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("INSERT INTO regional.regions (region) VALUES ('us-east')")
        owner.execute("INSERT INTO audit.rights VALUES ('durable_operator', 'regional', 'act %')")
    for number in range(1, count + 1):
        await append_event(world.databases, f"act {number}")
    return world.databases


async def checked(databases: Databases, anchor: ChainHead | None = None) -> ChainReport:
    async with databases.at_global("durable_reader").begin() as connection:
        (report,) = await verify(connection, {CHAIN: anchor} if anchor else None)
    return report


def tamper(databases: Databases, *statements: str) -> None:
    """As somebody with the superuser's rights, past every trigger."""
    with psycopg.connect(databases.urls[0]) as owner:
        owner.execute("SET session_replication_role = replica")
        for statement in statements:
            owner.execute(statement.encode())


async def test_every_event_links_to_the_one_before(world: World) -> None:
    databases = await append_events(world)
    report = await checked(databases)
    assert (report.broken_at, report.sentence) == (None, "every link holds")
    async with databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT sequence, actor, action, database_role, hash FROM audit.events")
        rows = (await connection.execute(query)).all()
    assert [(row.sequence, row.action) for row in rows] == [(n, f"act {n}") for n in range(1, 6)]
    assert {(row.actor, row.database_role) for row in rows} == {("alice", "durable_operator")}
    assert len({bytes(row.hash) for row in rows}) == 5
    assert str(report.head) == f"{CHAIN}:5:{bytes(rows[-1].hash).hex()}"


async def test_an_event_rolls_back_with_the_change_it_describes(world: World) -> None:
    databases = await append_events(world, 2)
    with pytest.raises(ZeroDivisionError):
        await append_event(databases, "act that failed", fails=True)
    await append_event(databases, "act 3")
    report = await checked(databases)
    assert (report.broken_at, report.head.sequence) == (None, 3)


async def test_events_appended_at_once_keep_the_chain(world: World, database_url: str) -> None:
    await append_events(world, 0)
    async with Databases(database_url) as others:
        await asyncio.gather(
            *(
                append_event(side, f"act {n}")
                for n in range(15)
                for side in (world.databases, others)
            )
        )
    report = await checked(world.databases)
    assert (report.broken_at, report.head.sequence) == (None, 30)


REWRITE = [
    "CREATE TEMP TABLE old AS SELECT * FROM audit.events",
    "DELETE FROM audit.events",
    "UPDATE audit.heads SET sequence = 0, hash = ''",
    "INSERT INTO audit.rights SELECT session_user, 'regional', '%'",
    """SELECT audit.append(chain, 'bob', action, object, before, after)
         FROM old ORDER BY sequence""",
]


@pytest.mark.parametrize(
    ("statements", "broken_at", "sentence"),
    [
        (["UPDATE audit.events SET actor = 'bob' WHERE sequence = 3"], 3,
         "event 3 of us-east (act 3 of node/n1 by bob) was changed"),
        (["UPDATE audit.events SET after = '{}' WHERE sequence = 1"], 1, "was changed"),
        (["UPDATE audit.events SET at = at + interval '1 us' WHERE sequence = 5"], 5,
         "was changed"),
        (["UPDATE audit.events SET hash = '\\x00' WHERE sequence = 2"], 2, "was changed"),
        (["DELETE FROM audit.events WHERE sequence = 3"], 3, "event 3 of us-east is missing"),
        (["DELETE FROM audit.events WHERE sequence = 1"], 1, "event 1 of us-east is missing"),
        (["DELETE FROM audit.events WHERE sequence = 5"], 5, "missing at the end"),
        (["DELETE FROM audit.events WHERE sequence >= 3"], 3, "missing at the end"),
        (["DELETE FROM audit.events"], 1, "missing at the end"),
        (["""UPDATE audit.events SET sequence = sequence + 100 WHERE sequence >= 3""",
          """INSERT INTO audit.events SELECT chain, 3, at, actor, database_role, action, object,
                    before, after, hash FROM audit.events WHERE sequence = 103""",
          """UPDATE audit.events SET sequence = sequence - 99 WHERE sequence > 100"""], 4,
         "was changed"),
        (["""INSERT INTO audit.events SELECT chain, 6, at, actor, database_role, action, object,
                    before, after, hash FROM audit.events WHERE sequence = 5"""], 6, "was changed"),
        (["CREATE TEMP TABLE head AS SELECT * FROM audit.heads",
          "INSERT INTO audit.rights SELECT session_user, 'regional', '%'",
          "SELECT audit.append('us-east', 'bob', 'forge', 'node/n1', NULL, NULL)",
          """UPDATE audit.heads AS h SET sequence = head.sequence, hash = head.hash FROM head
              WHERE h.chain = head.chain"""], 6, "event 6 of us-east was never appended"),
        (["DELETE FROM audit.heads"], 1, "event 1 of us-east was never appended"),
        (["UPDATE audit.heads SET hash = '\\x00'"], 5, "the head of us-east was changed"),
    ],
    ids=[
        "actor", "content", "time", "hash", "deleted in the middle", "deleted at the start",
        "deleted at the end", "cut", "emptied", "inserted in the middle", "inserted at the end",
        "forged at the end", "headless", "another head",
    ],
)  # fmt: skip
async def test_the_first_broken_row_is_named(
    world: World, statements: list[str], broken_at: int, sentence: str
) -> None:
    databases = await append_events(world)
    tamper(databases, *statements)
    report = await checked(databases)
    assert report.broken_at == broken_at
    assert sentence in report.sentence


async def test_only_an_anchor_kept_outside_sees_that_all_was_rewritten(world: World) -> None:
    databases = await append_events(world)
    anchor = (await checked(databases)).head
    assert (await checked(databases, anchor)).broken_at is None
    await append_event(databases, "act 6")
    assert (await checked(databases, anchor)).broken_at is None, "a chain may grow"

    tamper(databases, *REWRITE)
    assert (await checked(databases)).broken_at is None
    report = await checked(databases, anchor)
    assert report.broken_at == 5
    assert "is not the one that was anchored" in report.sentence


# By what was done: from where on the chain is broken, seen from an anchor at its second event.
AFTER_AN_ANCHOR: dict[str, tuple[list[str], int | None, str]] = {
    "nothing": ([], None, "every link holds"),
    "changed": (["UPDATE audit.events SET actor = 'bob' WHERE sequence = 4"], 4, "was changed"),
    "changed right after it": (
        ["UPDATE audit.events SET actor = 'bob' WHERE sequence = 3"], 3, "was changed"),
    "deleted in the middle": (
        ["DELETE FROM audit.events WHERE sequence = 4"], 4, "event 4 of us-east is missing"),
    "deleted right after it": (
        ["DELETE FROM audit.events WHERE sequence = 3"], 3, "event 3 of us-east is missing"),
    "the anchored one deleted": (
        ["DELETE FROM audit.events WHERE sequence = 2"], 2, "event 2 of us-east is missing"),
    "the anchored one changed, and all that follow": (REWRITE, 2, "not the one that was anchored"),
    "cut at the end": (["DELETE FROM audit.events WHERE sequence = 5"], 5, "missing at the end"),
    "cut before it": (["DELETE FROM audit.events WHERE sequence > 1"], 2, "missing at the end"),
    "cut before it, and the head too": (
        ["DELETE FROM audit.events WHERE sequence > 1",
         """UPDATE audit.heads AS h SET sequence = 1, hash = e.hash FROM audit.events AS e
             WHERE e.chain = h.chain"""], 2, "not the one that was anchored"),
    "emptied": (["DELETE FROM audit.events"], 1, "missing at the end"),
    "forged at the end": (
        ["""INSERT INTO audit.events SELECT chain, 6, at, actor, database_role, action, object,
                   before, after, hash FROM audit.events WHERE sequence = 5"""], 6, "was changed"),
    "another head": (["UPDATE audit.heads SET hash = '\\x00'"], 5, "the head of us-east"),
    "headless": (["DELETE FROM audit.heads"], 1, "event 1 of us-east was never appended"),
    # It was checked when the anchor was taken; --all checks it again.
    "changed before it": (
        ["UPDATE audit.events SET actor = 'bob' WHERE sequence = 1"], None, "every link holds"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("statements", "broken_at", "sentence"), AFTER_AN_ANCHOR.values(), ids=AFTER_AN_ANCHOR
)
async def test_from_an_anchor_on_the_first_broken_row_is_named(
    world: World, statements: list[str], broken_at: int | None, sentence: str
) -> None:
    databases = await append_events(world, 2)
    anchor = (await checked(databases)).head
    for number in (3, 4, 5):
        await append_event(databases, f"act {number}")
    tamper(databases, *statements)
    ((report,), _) = await verify_all(databases, {CHAIN: anchor}, from_anchors=True)
    assert report.broken_at == broken_at
    assert sentence in report.sentence


PAST = 3_000
# So that a block holds a few events; a scan of them all would read hundreds of blocks.
AS_LONG_AS = 1_500


async def test_from_an_anchor_on_nothing_is_read_of_what_is_before_it(world: World) -> None:
    databases = await append_events(world, 1)
    url = databases.urls[0]
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("INSERT INTO audit.rights SELECT session_user, 'regional', 'past %'")
        for _ in range(6):
            owner.execute(
                "SELECT audit.append(%s, 'alice', 'past act', 'node/n1', NULL,"
                " jsonb_build_object('is', repeat('x', %s))) FROM generate_series(1, %s)",
                [CHAIN, AS_LONG_AS, PAST // 6],
            )
        owner.execute("ANALYZE audit.events")
    anchor = (await checked(databases)).head
    assert anchor.sequence == PAST + 1
    await append_event(databases, "act 2")
    await databases.close()

    async def blocks(*, from_anchors: bool) -> int:
        async with touching(url) as touched, Databases(url) as reading:
            (found, _) = await verify_all(reading, {CHAIN: anchor}, from_anchors=from_anchors)
        assert [report.sentence for report in found] == ["every link holds"]
        assert not from_anchors or touched.rows_scanned["audit.events"] == 0
        return touched.blocks["audit.events"]

    everything = await blocks(from_anchors=False)
    assert everything > 300, "the past is as long as this test needs it"
    assert await blocks(from_anchors=True) < everything / 10


async def test_an_anchored_chain_that_vanished_altogether_is_missed(world: World) -> None:
    databases = await append_events(world)
    anchor = (await checked(databases)).head
    tamper(databases, "DELETE FROM audit.events", "DELETE FROM audit.heads")
    assert await verify_all(databases) == ([], {})
    ((report,), _) = await verify_all(databases, {CHAIN: anchor})
    assert report.broken_at == 1
    assert report.sentence == "every event of us-east is missing"


async def test_chains_are_verified_each_by_itself(world: World) -> None:
    databases = await append_events(world)
    await world.with_region()  # adds to the chains of the region and of the global side
    tamper(databases, "UPDATE audit.events SET actor = 'bob' WHERE chain = 'global'")
    found, _ = await verify_all(databases)
    reports = {report.head.chain: report.broken_at for report in found}
    assert reports == {"us-east": None, "global": 1}


WRITES = [
    "UPDATE audit.events SET actor = 'bob'",
    "DELETE FROM audit.events",
    "TRUNCATE audit.events",
]


async def test_no_role_changes_an_event_nor_writes_one_past_the_chain(world: World) -> None:
    databases = await append_events(world, 1)
    forge = "INSERT INTO audit.events SELECT chain, 2, at, actor, database_role, action, object"
    forge += ", before, after, hash FROM audit.events"
    rewind = "UPDATE audit.heads SET sequence = 0"
    with psycopg.connect(databases.urls[0], autocommit=True) as connection:
        for role in ROLES:
            connection.execute(f"SET ROLE {role.name}".encode())
            for statement in (*WRITES, forge, rewind):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
            connection.execute("RESET ROLE")


@pytest.mark.parametrize("statement", WRITES)
async def test_not_even_the_owner_changes_an_event(world: World, statement: str) -> None:
    databases = await append_events(world, 1)
    with (
        psycopg.connect(databases.urls[0]) as owner,
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"),
    ):
        owner.execute(statement.encode())


async def test_a_reader_cannot_append_anything(world: World) -> None:
    with psycopg.connect(world.databases.urls[0]) as connection:
        connection.execute("SET ROLE durable_reader")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT audit.append('us-east', 'bob', 'a', 'b', NULL, NULL)")


# ── whose events they are ───────────────────────────────────────────────────────────────────────


def appends(connection: psycopg.Connection, role: str, chain: str, action: str) -> bool:
    """Whether the role may append this, as the database answers."""
    append = "SELECT audit.append(%s, 'bob', %s, 'node/n1', NULL, NULL)"
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"SET LOCAL ROLE {role}".encode())
            connection.execute(append, [chain, action])
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


async def test_a_role_appends_only_its_own_actions_to_its_own_chains(world: World) -> None:
    await world.with_region()
    own = {
        (role.name, side, action.replace("%", "hold"))
        for role in ROLES
        for side, actions in role.audits.items()
        for action in actions
    }
    actions = {action for _, _, action in own} | {"act", "declare nodes of others", ""}
    with psycopg.connect(world.databases.urls[0], autocommit=True) as connection:
        for role, (side, chain), action in product(
            ROLES, [("global", "global"), ("regional", CHAIN)], sorted(actions)
        ):
            may = (role.name, side, action) in own
            assert appends(connection, role.name, chain, action) == may, (role.name, chain, action)
        assert not appends(connection, "durable_operator", "nowhere", "add region")


async def test_role_and_time_are_the_connections_and_the_clocks(world: World) -> None:
    await world.with_region()
    async with world.databases.at_global("durable_reader").begin() as connection:
        query = text("""
            SELECT action, database_role, at BETWEEN clock_timestamp() - interval '1 minute'
                   AND clock_timestamp() AS is_now FROM audit.events ORDER BY chain, sequence
        """)
        rows = (await connection.execute(query)).all()
    assert [(row.action, row.database_role, row.is_now) for row in rows] == [
        ("publish policy", "durable_policy", True),
        ("add region", "durable_operator", True),
        ("set policy state", "durable_policy", True),
    ]


def test_every_action_in_the_code_belongs_to_a_role() -> None:
    """The actions are words in the code; one that no role has would fail only when it is taken."""
    allowed = {action for role in ROLES for actions in role.audits.values() for action in actions}
    written = {
        node.value
        for path in Path(durable.authority.__path__[0]).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.keyword) and call.arg == "action"
        for node in ast.walk(call.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    }
    assert {action for action in written if action != " region"} <= allowed


ODD_DATES = [
    "0001-01-01Z", "4713-01-01Z BC", "9999-12-31 23:59Z", "12345-01-01Z", "infinity", "-infinity",
]  # fmt: skip


async def test_odd_dates_break_neither_the_log_nor_its_verification(world: World) -> None:
    databases = await append_events(world, 2)
    with (
        psycopg.connect(databases.urls[0]) as owner,
        pytest.raises(psycopg.errors.CheckViolation, match="at_readable"),
    ):
        owner.execute(
            "INSERT INTO audit.events SELECT chain, 3, 'infinity', actor, database_role, action,"
            " object, before, after, hash FROM audit.events WHERE sequence = 2"
        )
    for number, odd in enumerate(ODD_DATES, 3):
        tamper(
            databases,
            "ALTER TABLE audit.events DROP CONSTRAINT IF EXISTS events_at_readable",
            f"INSERT INTO audit.events SELECT chain, {number}, '{odd}', actor, database_role,"
            " action, object, before, after, hash FROM audit.events WHERE sequence = 2",
        )
    events, _ = await read_events(databases)
    assert sorted(event.sequence for event in events) == [1, 2, *range(3, 3 + len(ODD_DATES))]
    assert {event.at.year for event in events if event.sequence > 2} == {2, 9999}
    assert (await checked(databases)).broken_at == 3
