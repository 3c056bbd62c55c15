"""Whoever has a connection can list, show and follow every resource of the table."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from durable.authority.db.connection import Databases
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.operators.changes import ensure_operator
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.resources import reader
from durable.resources.reader import Reader
from durable.resources.resource import Resource, head_of, value_in
from durable.resources.table import NODES, RESOURCES, find_resource
from durable.validation.value import Value
from tests.authority.world import EAST, TEST, World

NAMED_BY_A_WORKLOAD = {"decisions", "generations"}


@pytest.fixture
async def reads(database_url: str) -> AsyncIterator[Reader]:
    """us-east with one node and one tenant."""
    async with Databases(database_url) as databases:
        await World(databases).ready()
        yield Reader(databases)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda one: one.name)
async def test_every_kind_is_listed_with_its_columns(
    reads: Reader, resource: Resource[Value]
) -> None:
    if resource.name in NAMED_BY_A_WORKLOAD:
        with pytest.raises(RefusedError, match="Name the workload"):
            await reads.get(resource)
        return
    rows = await reads.get(resource.singular)
    assert (rows.unreachable, rows.total) == ({}, len(rows))
    for row in rows:
        assert resource.fields_of(row)
        assert all(head_of(one) for one in resource.columns)
        [value_in(row, column) for column in resource.columns]
        if resource.show is None:
            assert await reads.show(resource, resource.name_of(row)) == row


async def test_temporal_is_asked_only_for_what_is_wrong_with_workflows(reads: Reader) -> None:
    asked: list[TenantId | None] = []

    async def ask(tenant: TenantId | None) -> None:
        asked.append(tenant)

    reader = Reader(reads.databases, ask)
    for kind in ("workloads", "placements"):
        await reader.get(kind)
        with pytest.raises(RefusedError):
            await reader.show(kind, "risk/api")
    assert asked == []
    await reader.get("workloads", problems=True)
    assert asked == [None]


async def test_rows_are_typed_filtered_and_limited(reads: Reader) -> None:
    nodes = await reads.get(NODES, region="us-east")
    assert [node.node for node in nodes] == ["n1"]
    limited = await reads.get("nodes", limit=0)
    assert (len(limited), limited.total) == (0, len(nodes))


@pytest.mark.parametrize(
    ("kind", "filters", "code", "words"),
    [
        ("clouds", {}, RefusalCode.INVALID, "allowed: workloads, placements"),
        ("nodes", {"tenant": "risk"}, RefusalCode.INVALID, "cannot be filtered by tenant"),
        ("nodes", {"region": "No Such"}, RefusalCode.INVALID, "region"),
        ("nodes", {"region": "nowhere"}, RefusalCode.UNKNOWN_REGION, "the regions are us-east"),
        ("decisions", {"workload": "risk"}, RefusalCode.UNKNOWN_WORKLOAD, "No such workload"),
    ],
)
async def test_what_cannot_be_listed_is_refused(
    reads: Reader, kind: str, filters: dict[str, Any], code: RefusalCode, words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        await reads.get(kind, **filters)
    assert refused.value.refusal.code is code


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("node", "nowhere", RefusalCode.UNKNOWN_NODE),
        ("drain", "drain/us-east/n1", RefusalCode.UNKNOWN_DRAIN),
        ("drain", "n1", RefusalCode.UNKNOWN_DRAIN),
        ("override", "No Such", RefusalCode.UNKNOWN_OVERRIDE),
        ("override", "none", RefusalCode.UNKNOWN_OVERRIDE),
        ("policy", "next", RefusalCode.UNKNOWN_POLICY),
        ("recovery", "us-east", RefusalCode.WRONG_STATE),
    ],
)
async def test_what_does_not_exist_is_refused_by_name(
    reads: Reader, kind: str, name: str, code: RefusalCode
) -> None:
    with pytest.raises(RefusedError) as refused:
        await reads.show(kind, name)
    assert refused.value.refusal.code is code


async def test_what_is_followed_is_yielded_whenever_it_has_changed(
    reads: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "POLL_SECONDS", 0.01)
    await ensure_operator(reads.databases, TEST)
    seen: list[str | None] = []
    async for node in reads.follow("node", "n1"):
        seen.append(node.cordoned)
        if len(seen) == 2:
            break
        target = NodesTarget.of_node(EAST, NodeId("n1"))
        await cordon_nodes(reads.databases, target, actor=TEST, reason="a fan")
    assert seen == [None, "a fan"]


def test_names_lead_to_one_resource() -> None:
    names = [name for one in RESOURCES for name in (one.name, one.singular, one.short) if name]
    assert len(names) == len(set(names))
    assert find_resource("no") is find_resource("node") is NODES
