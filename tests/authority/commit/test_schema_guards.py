"""Tries to break S1, S2, S3 and S6 with plain SQL, as every role and as the owner, and fails to."""

import re
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from durable.authority.db.connection import Databases
from durable.authority.db.roles import ROLES
from durable.authority.reads.invariants import violations
from durable.model.resources import Capacity, Resources
from tests.authority.conftest import furnished
from tests.authority.world import BILLING, EAST, WEST, World, node
from tests.conftest import Copies

OWNER = "the owner"

NEW_RESERVATION = """
    INSERT INTO regional.reservations
           (region, token, tenant, workload, generation, slot, attempt, node, cpu_millis,
            memory_mib, gpus, devices, budget, priority, policy_revision, epoch, state,
            reserved_at, expires_at, ended_at, created_version, changed_version, freed_version,
            actor, evidence)
    VALUES ({region}, {number}, 'risk', 'api', 1, {slot}, 9, {node}, {cpu},
            {memory}, {gpus}, {devices}, {budget}, 1, 1, 1, {state},
            now(), now() + interval '1 hour', {ended_at}, 1, 1, {freed},
            'x', 'x')
"""


def reservation(**values: str) -> str:
    usual = {
        "region": "'us-east'", "number": "99", "slot": "7", "node": "'n1'", "cpu": "1",
        "memory": "1", "gpus": "0", "devices": "'{}'", "budget": "NULL", "state": "'held'",
        "ended_at": "NULL", "freed": "NULL",
    }  # fmt: skip
    return NEW_RESERVATION.format(**{**usual, **values})


# The world below: in us-east slot 0 runs as token 1 with gpu-0 on n1, slot 1 is held as token 2,
# slot 2 was released as token 3. us-west owns nothing.
ATTACKS = {
    # S1: one slot has at most one active binding
    "S1 reserve a running slot again": reservation(slot="0"),
    "S1 reserve a held slot again": reservation(slot="1"),
    "S1 reserve a slot that another region owns": reservation(region="'us-west'", node="'w1'"),
    "S1 reserve a slot that nobody assigned": reservation(slot="70"),
    "S1 give a claimed slot to another region": """
        UPDATE regional.slots SET region = 'us-west', number = 9 WHERE slot = 0
    """,
    "S1 give a free slot away under its old number": """
        UPDATE regional.slots SET region = 'us-west' WHERE slot = 5
    """,
    "S1 own a slot twice": """
        INSERT INTO regional.slots VALUES ('risk', 'api', 0, 'us-west', 9)
    """,
    "S1 take a claimed slot away": "DELETE FROM regional.slots WHERE slot = 0",
    "S1 delete a running claim": """
        DELETE FROM regional.bindings WHERE token = 1;
        DELETE FROM regional.reservations WHERE token = 1
    """,
    "S1 move a claim to another slot": "UPDATE regional.reservations SET slot = 3 WHERE token = 2",
    "S1 revive a released claim": """
        UPDATE regional.reservations SET freed_version = NULL WHERE token = 3
    """,
    "S1 bind a released reservation": """
        INSERT INTO regional.bindings (region, token, bound_at, changed_version, actor, evidence)
        VALUES ('us-east', 3, now(), 1, 'x', 'x')
    """,
    # S2: a node holds at most its capacity, a device has at most one holder
    "S1 bind again what was released": """
        DELETE FROM regional.bindings WHERE token = 4;
        INSERT INTO regional.bindings (region, token, bound_at, changed_version, actor, evidence)
        VALUES ('us-east', 4, now(), 1, 'x', 'x')
    """,
    "S1 forget the number of a slot": "DELETE FROM regional.slots WHERE slot = 5",
    "S2 reserve more cpu than the node has": reservation(cpu="7001"),
    "S2 reserve more memory than the node has": reservation(memory="40000"),
    "S2 reserve less than nothing": reservation(cpu="-1"),
    "S2 reserve on a node that does not exist": reservation(node="'ghost'"),
    "S2 zero a node's use": "UPDATE regional.nodes SET used_cpu_millis = 0 WHERE node = 'n1'",
    "S2 shrink a node below its use": """
        UPDATE regional.nodes SET capacity_cpu_millis = 1 WHERE node = 'n1'
    """,
    "S2 delete and forget a node": "DELETE FROM regional.nodes WHERE node = 'n1'",
    "S2 rename a node": "UPDATE regional.nodes SET node = 'n9' WHERE node = 'n1'",
    "S2 add a node that is full already": """
        INSERT INTO regional.nodes (region, node, zone, pool, used_cpu_millis, changed_version)
        VALUES ('us-east', 'n8', 'a', 'p', -5, 1)
    """,
    "S2 shrink a claim": "UPDATE regional.reservations SET cpu_millis = 0 WHERE token = 1",
    "S2 move a claim to another node": """
        UPDATE regional.reservations SET node = 'n2' WHERE token = 1
    """,
    "S2 take a device that is held": reservation(gpus="1", devices="ARRAY['gpu-0']"),
    "S2 take a device that does not exist": reservation(gpus="1", devices="ARRAY['gpu-77']"),
    "S2 take a device without counting it": reservation(devices="ARRAY['gpu-1']"),
    "S2 count a device without taking it": reservation(gpus="1"),
    "S2 hold a device twice": """
        INSERT INTO regional.device_holds VALUES ('us-east', 'n1', 'gpu-0', 900)
    """,
    "S2 hold a device by hand": """
        INSERT INTO regional.device_holds VALUES ('us-east', 'n1', 'gpu-1', 900)
    """,
    "S2 free a held device": "DELETE FROM regional.device_holds",
    "S2 hand a held device over": "UPDATE regional.device_holds SET token = 900",
    "S2 remove a held device": "DELETE FROM regional.devices WHERE device = 'gpu-0'",
    "S2 empty the claims": "TRUNCATE regional.reservations CASCADE",
    # S3: a tenant never uses more than its hard quota
    "S3 reserve more than the grant": reservation(node="'big'", cpu="9500"),
    "S3 zero a grant's use": "UPDATE regional.grants SET used_cpu_millis = 0",
    "S3 grow a grant that was not given": """
        UPDATE regional.grants SET granted_cpu_millis = granted_cpu_millis + 1000000
    """,
    "S3 grant a region out of nothing": """
        INSERT INTO regional.grants (region, tenant, granted_cpu_millis)
        VALUES ('us-west', 'risk', 1000000)
    """,
    "S3 grant a tenant that does not exist": """
        INSERT INTO regional.grants (region, tenant, granted_cpu_millis)
        VALUES ('us-east', 'ghost', 1000000)
    """,
    "S3 delete a grant in use": "DELETE FROM regional.grants",
    "S3 book more than the hard quota": """
        UPDATE global.grants SET granted_cpu_millis = granted_cpu_millis + 1000000
    """,
    "S3 book another region beyond the hard quota": """
        INSERT INTO global.grants VALUES ('risk', 'us-west', 1000000, 0, 0)
    """,
    "S3 take back a grant that the region still has": """
        UPDATE global.grants SET granted_cpu_millis = 0
    """,
    "S3 delete the books": "DELETE FROM global.grants",
    "S3 move the books to another tenant": "UPDATE global.grants SET tenant = 'billing'",
    "S3 zero the granted sum": "UPDATE global.quotas SET granted_cpu_millis = 0",
    "S3 lower the hard quota below the grants": "UPDATE global.quotas SET hard_cpu_millis = 1",
    "S3 claim for another tenant": "UPDATE regional.reservations SET tenant = 'billing'",
    "S3 grant before there is anybody to grant to": """
        INSERT INTO regional.grants (region, tenant, granted_cpu_millis)
        VALUES ('us-west', 'nobody', 1000000)
    """,
    "S3 say that a region holds nothing": "UPDATE global.grants SET held_cpu_millis = 0",
    "S3 say that the books are elsewhere": "UPDATE regional.deployment SET serves_global = false",
    "S2 claim through a table of one's own": """
        CREATE TEMP TABLE evil (region text, node text, tenant text, budget text,
            cpu_millis bigint, memory_mib bigint, gpus bigint, devices text[], token bigint,
            freed_version bigint);
        CREATE TRIGGER t AFTER UPDATE ON evil REFERENCING NEW TABLE AS changed
            FOR EACH STATEMENT EXECUTE FUNCTION regional.account_claims();
        INSERT INTO evil VALUES ('us-east', 'n1', 'risk', NULL, 1000, 1024, 1, '{}', 1, 5);
        UPDATE evil SET token = 1
    """,
    "S3 zero the granted sum through a table of one's own": """
        CREATE TEMP TABLE evil (tenant text, granted_cpu_millis bigint,
            granted_memory_mib bigint, granted_gpus bigint);
        CREATE TRIGGER t AFTER DELETE ON evil FOR EACH ROW
            EXECUTE FUNCTION global.account_grants();
        INSERT INTO evil VALUES ('risk', 9000, 64000, 4);
        DELETE FROM evil
    """,
    "S4 keep a node in use for somebody else": """
        UPDATE regional.nodes SET dedicated_to = 'billing', changed_version = 4 WHERE node = 'n1'
    """,
    # S6: a reservation ends in exactly one of bound, released, expired
    "S6 begin bound": reservation(state="'bound'", ended_at="now()"),
    "S6 begin released": reservation(state="'released'", ended_at="now()", freed="1"),
    "S6 bind without a binding": """
        UPDATE regional.reservations SET state = 'bound', ended_at = now() WHERE token = 2
    """,
    "S6 give a held reservation a binding": """
        INSERT INTO regional.bindings (region, token, bound_at, changed_version, actor, evidence)
        VALUES ('us-east', 2, now(), 1, 'x', 'x')
    """,
    "S6 end without freeing": """
        UPDATE regional.reservations SET state = 'released', ended_at = now() WHERE token = 2
    """,
    "S6 free without ending": "UPDATE regional.reservations SET freed_version = 9 WHERE token = 2",
    "S6 free what is bound": "UPDATE regional.reservations SET freed_version = 9 WHERE token = 1",
    "S6 bind and free at once": """
        UPDATE regional.reservations SET state = 'bound', ended_at = now(), freed_version = 9
         WHERE token = 2
    """,
    "S6 release what is bound": """
        UPDATE regional.reservations SET state = 'released', freed_version = 9 WHERE token = 1
    """,
    "S6 expire what is released": """
        UPDATE regional.reservations SET state = 'expired' WHERE token = 3
    """,
    "S6 hold again": "UPDATE regional.reservations SET state = 'held', ended_at = NULL",
    "S6 revive a released binding": """
        UPDATE regional.bindings SET state = 'bound', released_at = NULL WHERE token = 4
    """,
    "S6 release and keep the capacity": """
        UPDATE regional.bindings SET state = 'starting', released_at = now() WHERE token = 1
    """,
    "S6 delete a held reservation": "DELETE FROM regional.reservations WHERE token = 2",
    "S6 stretch a lease": """
        UPDATE regional.reservations SET expires_at = expires_at + interval '1 year'
    """,
    # Their records
    "record: rewrite an outcome": "UPDATE regional.intents SET outcome = '{}'",
    "record: forget a transition": "DELETE FROM regional.transitions",
    "record: forge an audit event": """
        INSERT INTO audit.events
        VALUES ('global', 99, now(), 'x', 'x', 'x', 'x', NULL, NULL, '\\x00')
    """,
    "record: rewrite the audit": "UPDATE audit.events SET actor = 'nobody'",
    "record: cut the audit": "DELETE FROM audit.events",
    "record: turn an epoch back": "UPDATE regional.regions SET epoch = 0, version = 0",
    "record: use up the versions": "UPDATE regional.regions SET version = 9223372036854775807",
    "record: use up the tokens": "UPDATE regional.regions SET tokens_issued = 9000000000",
    "record: take a token that was not issued": reservation(number="100"),
    "record: use up a node's versions": """
        UPDATE regional.nodes SET changed_version = 9223372036854775807 WHERE node = 'n1'
    """,
    "record: use up a node's sessions": """
        UPDATE regional.node_leases SET session = 9223372036854775807
    """,
    "record: use up a slot's numbers": """
        UPDATE regional.slots SET number = 9223372036854775807 WHERE slot = 5
    """,
    "record: forget a workload's generation": "DELETE FROM global.workloads",
    "record: turn a generation back": "UPDATE global.workloads SET generations = 1, generation = 1",
    "record: raise the dead under their old generation": """
        UPDATE global.workloads SET deleted_at = NULL WHERE deleted_at IS NOT NULL
    """,
    "record: bury what is still held": """
        UPDATE global.workloads SET finalizers = '{durable/bindings}', deleted_at = now()
    """,
    "record: answer a request otherwise": "UPDATE global.operator_requests SET answer = '{}'",
    "record: forget a request": "DELETE FROM global.operator_requests",
    "record: forget a drain's order": "DELETE FROM regional.operator_requests",
    "record: let a request count again": "UPDATE regional.operator_requests SET request = 'r2'",
    "record: have signatures for another deployment count": "UPDATE global.deployment SET id = 'x'",
    "record: run something else": "UPDATE regional.requests SET spec = '{}'",
    "record: ask again for what was withdrawn": "UPDATE regional.requests SET state = 'placed'",
    "record: rewrite a decision": "UPDATE regional.decisions SET evidence = '{}'",
    "record: forget a node's history": "DELETE FROM regional.node_history",
    "record: rewrite a node's history": """
        UPDATE regional.nodes SET labels = '{"a": "b"}', changed_version = 1 WHERE node = 'n1'
    """,
}

DELETED_WORKLOAD = """
    INSERT INTO global.workloads (tenant, workload, generation, generations, spec, deleted_at)
    VALUES ('risk', 'gone', 2, 2, '{}', now());
    INSERT INTO global.operator_requests
    VALUES ('workload/risk/gone', 'r1', 'apply', '', 'x', false, '{"a": 1}', now(),
            now() + interval '31 days');
    INSERT INTO regional.operator_requests
    VALUES ('drain/east/n1', 'r1', 'drain', '', 'x', false, '{"a": 1}', now());
    INSERT INTO regional.requests
           (region, tenant, workload, generation, slots, priority, state, enqueued_at, deadline,
            spec)
    VALUES ('us-east', 'risk', 'gone', 2, '{0}', 1, 'withdrawn', now(), now() + interval '1 hour',
            '{"replicas": 1}')
"""

# The owner can do these: verifying the audit finds the first, the invariants find the second and
# third, and whoever may create triggers may also drop them.
OWNER_MAY = {
    "record: forge an audit event",
    "S2 claim through a table of one's own",
    "S3 zero the granted sum through a table of one's own",
}


async def besiege(world: World) -> World:
    await world.with_region()
    await world.with_nodes(
        node(gpus=2), node("n2", gpus=2), node("big", capacity=Capacity(cpu_millis=64_000))
    )
    await world.with_region(WEST)
    await world.with_nodes(node("w1", region=WEST), region=WEST)
    await world.with_tenant(grant=Resources.of(9000, 64_000, 4))
    await world.with_tenant(BILLING, grant=Resources.of(9000, 64_000, 4))
    await world.with_slots()
    await world.running(0, resources=Resources.of(1000, 1024, 1))
    await world.granted(world.reserve(1))
    await world.granted(world.release((await world.granted(world.reserve(2))).token, 2))
    token = (await world.granted(world.reserve(3))).token
    await world.granted(world.bind(token, 3))
    await world.granted(world.release(token, 3))
    with psycopg.connect(world.databases.urls[0]) as owner:
        # A workload that was deleted in its second generation, and its withdrawn request.
        owner.execute(DELETED_WORKLOAD)
        # So that an attack is refused for what it tries, not for its token.
        owner.execute("UPDATE regional.regions SET tokens_issued = 99")
    return world


@pytest.fixture(scope="module")
def besieged_template(copies: Copies, template: str) -> str:
    return furnished(copies, template, besiege)


# What goes on after a restore goes on above the tokens of every copy.
MAY = {"durable_restore": {"record: use up the tokens"}}


@pytest.fixture
async def besieged(copies: Copies, besieged_template: str) -> AsyncIterator[World]:
    with copies.lend(besieged_template) as url:
        async with Databases(url) as databases:
            yield World(databases, sessions={"n1": 1})


@pytest.fixture
def besieged_url(besieged: World) -> str:
    return besieged.databases.urls[0]


@pytest.mark.parametrize("role", [*(role.name for role in ROLES), OWNER])
async def test_plain_sql_cannot_break_an_invariant(
    besieged: World, besieged_url: str, role: str
) -> None:
    got_through: dict[str, str] = {}
    with psycopg.connect(besieged_url, autocommit=True) as connection:
        if role != OWNER:
            connection.execute(f"SET ROLE {role}".encode())
        for attack, sql in ATTACKS.items():
            if (role == OWNER and attack in OWNER_MAY) or attack in MAY.get(role, ()):
                continue
            try:
                with connection.transaction():
                    connection.execute(sql.encode())
            except psycopg.Error as error:
                if not re.fullmatch("42501|23...", error.sqlstate or ""):
                    got_through[attack] = f"{error.sqlstate}: {error}"
            else:
                got_through[attack] = "was allowed"
    assert got_through == {}
    assert await broken_invariants(besieged.databases) == []


async def test_old_snapshots_do_not_hide_a_grant_from_the_books(
    besieged: World, besieged_url: str
) -> None:
    """The two sides meet in one row, whatever the isolation of whoever writes them."""
    with psycopg.connect(besieged_url) as returns, psycopg.connect(besieged_url) as books:
        for connection in (returns, books):
            connection.execute("SET ROLE durable_quota")
            connection.commit()
        shrink = "UPDATE regional.grants SET granted_gpus = %s WHERE tenant = 'billing'"
        returns.execute(shrink, [0])
        returns.commit()
        books.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        books.execute("SELECT FROM regional.grants")
        returns.execute(shrink, [4])
        returns.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            books.execute("UPDATE global.grants SET granted_gpus = 0 WHERE tenant = 'billing'")
    assert await broken_invariants(besieged.databases) == []


async def test_the_owner_forging_the_audit_is_found_out(besieged: World, besieged_url: str) -> None:
    with psycopg.connect(besieged_url) as connection:
        connection.execute(ATTACKS["record: forge an audit event"].encode())
    assert "the audit's chains hold" in await broken_invariants(besieged.databases)


async def test_the_invariants_see_what_a_superuser_breaks(
    besieged: World, superuser: psycopg.Connection
) -> None:
    """The checker itself is checked: without the guards, each lie is seen for what it is."""
    lies = {
        "S1: a slot has at most one active claim, in all regions together": """
            DROP INDEX regional.reservations_one_claim_per_slot;
            UPDATE regional.reservations SET slot = 0 WHERE token = 2
        """,
        "S2: a node's use is the sum of its claims": """
            UPDATE regional.nodes SET used_cpu_millis = 7 WHERE node = 'n1'
        """,
        "S2: the devices held are those of the claims": "DELETE FROM regional.device_holds",
        "S3: a grant's use is the sum of its claims": """
            UPDATE regional.grants SET used_memory_mib = 7 WHERE tenant = 'risk'
        """,
        "S3: a region holds at most the grant it was given": """
            UPDATE regional.grants SET granted_gpus = 77 WHERE tenant = 'risk'
        """,
        "S3: the grants of a tenant sum up within its hard quota": """
            UPDATE global.quotas SET granted_gpus = 0
        """,
        "S4: work runs only where residency, tenancy and required labels allow": """
            UPDATE regional.nodes SET dedicated_to = 'billing' WHERE node = 'n1'
        """,
        "S6: a reservation is bound exactly when it has a binding": """
            DELETE FROM regional.bindings WHERE token = 1
        """,
        "S6: a claim ends exactly when its reservation or binding does": """
            UPDATE regional.reservations SET freed_version = NULL WHERE token = 4
        """,
        "the last recorded transition is the state": """
            DELETE FROM regional.transitions WHERE kind = 'reservation' AND token = 2
        """,
        "every reservation was granted to exactly one intent": """
            DELETE FROM regional.intents WHERE slot = 1 AND step = 'reserve'
        """,
        "the audit's chains hold": "DELETE FROM audit.events WHERE sequence = 1",
    }
    assert await broken_invariants(besieged.databases) == []
    unseen: list[str] = []
    for invariant, lie in lies.items():
        superuser.execute(lie.encode())
        superuser.commit()
        if invariant not in await broken_invariants(besieged.databases):
            unseen.append(invariant)
    assert unseen == []


@pytest.fixture
def superuser(besieged_url: str) -> Iterator[psycopg.Connection]:
    """A connection for which no trigger fires and no reference is checked."""
    with psycopg.connect(besieged_url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.commit()
        yield connection


async def broken_invariants(databases: Databases) -> list[str]:
    async with databases.at_region(EAST, "durable_reader").begin() as connection:
        return sorted({found.invariant for found in await violations(connection)})
