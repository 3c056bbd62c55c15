"""Many who ask the same at once, and two who want the same last thing."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable.authority.reads.claims import read_claims
from durable.client import Durable
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload
from durable.temporal.sender import MessageSender
from durable.temporal.updates import Patience
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until


async def test_the_same_request_fifty_times_at_once_is_one_workload(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()

    answers = await asyncio.gather(
        *(plane.durable.apply(manifest(), request_id="one") for _ in range(50))
    )

    assert {answer.generation for answer in answers} == {1}
    assert (await plane.durable.wait("risk", "api")).serving == 2
    assert len(await read_claims(plane.databases, EAST, and_ended=True)) == 2
    await plane.no_invariant_is_broken()


async def test_fifty_callers_of_several_processes_are_all_answered(plane: Plane) -> None:
    """Five times as many as Temporal lets in at a time, and each client knows of ten alone."""
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=1))
    clients = [await Durable.connect(plane.settings) for _ in range(5)]
    for client in clients:
        plane.stack.push_async_callback(client.databases.close)

    def request(number: int) -> Awaitable[AdmittedWorkload]:
        client, count = clients[number % 5], 1 + number % 3
        if number % 2:
            return client.scale("risk", "api", count, request_id=f"n-{number}")
        return client.apply(manifest(replicas=count), request_id=f"n-{number}")

    answers = await asyncio.gather(*map(request, range(50)))
    assert [one.spec.replicas for one in answers] == [1 + number % 3 for number in range(50)]
    assert {one.generation for one in answers} == {1}
    await plane.durable.scale("risk", "api", 3)
    assert (await plane.durable.wait("risk", "api")).serving == 3


async def test_callers_wait_for_a_worker_that_lives_and_is_busy(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its database keeps it waiting for longer than a caller waits for a sign of a worker."""
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=1))
    tries = 0
    send = MessageSender._try  # pyright: ignore[reportPrivateUsage]

    async def counted(self: MessageSender, *of: Any) -> Any:
        nonlocal tries
        tries += 1
        return await send(self, *of)

    monkeypatch.setattr(MessageSender, "_try", counted)
    patience = Patience(silence=timedelta(seconds=0.5), each=timedelta(seconds=0.5))
    durable = plane.durable
    sender = MessageSender(durable.client, plane.databases, durable.actor, patience=patience)
    url = plane.settings.require_database_url()
    async with await psycopg.AsyncConnection.connect(url) as holder:
        await holder.execute("SELECT FROM global.workloads FOR UPDATE")
        key = TenantId("risk"), WorkloadName("api")
        scaling = asyncio.create_task(sender.send(key, "scale", replicas=2))

        async def keeps_trying() -> bool:
            assert not scaling.done(), "no worker answered, but one polls"
            return tries > 4

        await until(keeps_trying, "it was sent for longer than it waits for silence")
        await holder.commit()
    assert (await scaling).spec.replicas == 2


async def test_another_payload_under_the_same_request_id_is_a_conflict(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(), request_id="one")
    await plane.durable.wait("risk", "api")

    with pytest.raises(RefusedError, match="Request id one was used for the apply at") as no:
        await plane.durable.apply(manifest(replicas=3), request_id="one")

    assert no.value.refusal.code is RefusalCode.KEY_CONFLICT
    assert (await plane.durable.status("risk", "api")).wanted == 2


async def test_two_workers_with_stale_caches_race_for_the_last_gpu(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=1, gpus=1))
    # Two workers of one region: each has a cache of its own, and neither knows of the other.
    await (await (await plane.host()).work()).work()
    one_gpu = {"cpu": 1, "memory": "1Gi", "gpu": 1}
    names = [f"job-{number}" for number in range(8)]

    await asyncio.gather(
        *(plane.durable.apply(manifest(name, replicas=1, resources=one_gpu)) for name in names)
    )

    async def settled() -> bool:
        found = [await plane.durable.status("risk", name) for name in names]
        return sorted(one.phase for one in found) == ["serving", *["waiting"] * 7]

    await until(settled, "one serves and the others wait")
    assert len(await plane.bindings()) == 1
    await plane.no_invariant_is_broken()


async def test_a_gang_starts_together_or_not_at_all(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=2, cpu=1))
    await (await plane.host()).work()
    await plane.durable.apply(manifest("small", replicas=1))
    await plane.durable.wait("risk", "small")

    await plane.durable.apply(manifest("gang", replicas=4, all_or_nothing=True))

    async def waits() -> bool:
        return (await plane.durable.status("risk", "gang")).phase == "waiting"

    await until(waits, "the gang waits")
    assert {name for name, _ in await plane.bindings()} == {"small"}
    await plane.durable.delete("risk", "small")
    assert (await plane.durable.wait("risk", "gang")).serving == 4
    await plane.no_invariant_is_broken()


async def test_what_waiting_would_never_mend_is_refused_and_leaves_nothing(plane: Plane) -> None:
    await (await plane.load()).work()
    changes: list[tuple[dict[str, Any], RefusalCode, str]] = [
        ({"requirements": {"regions": ["mars"]}}, RefusalCode.UNKNOWN_REGION, "east"),
        ({"weights": {"east": 0}}, RefusalCode.RESIDENCY, "east"),
        ({"resources": {"cpu": 5}}, RefusalCode.NEVER_FITS, "cpu"),
        ({"requirements": {"labels": {"disk": "fast"}}}, RefusalCode.REQUIRED_LABELS, "disk"),
        ({"replicas": 100}, RefusalCode.OVER_HARD_QUOTA, "hard quota of risk"),
    ]
    for change, code, sentence in changes:
        with pytest.raises(RefusedError) as no:
            await plane.durable.apply(manifest(**change))

        refusal = no.value.refusal
        assert (refusal.code, sentence in refusal.sentence) == (code, True), no.value
        with pytest.raises(RefusedError, match="There is no workload"):
            await plane.durable.status("risk", "api")
        assert await read_claims(plane.databases, EAST, and_ended=True) == [], code
