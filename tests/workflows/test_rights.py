"""Who may send what: refused, nothing changes; it is answered or shown, and it is in the audit."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import WithStartWorkflowOperation, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from durable.authority.audit.events import read_events
from durable.authority.fleet.policies import publish_policy
from durable.authority.operators.changes import add_operator, set_key
from durable.authority.workloads.rows import read_workload
from durable.client import Durable
from durable.model.fleet.drain import NodesTarget
from durable.model.fleet.manifest import Fleet
from durable.model.ids import ActorId, NodeId, OverrideId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorKind, OperatorMessage, Right, Scope
from durable.model.operators.signature import public_key_of, sign
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusedError
from durable.scheduling.policies import first_policy
from durable.signals.registry import REGISTRY, Sender
from durable.signals.starting import drain_options, override_options, workload_options
from durable.temporal.signing import create_key
from durable.workflows import inbox
from tests.conftest import DEPLOYMENT
from tests.workflows.plane import DEADLINE_SECONDS, EAST, Plane, manifest, small_fleet, until
from tests.workflows.temporal_command import BOTH, send

TEST = ActorId("test")
CI = ActorId("service:billing")
WORKLOAD, PLACEMENT = "workload/risk/api", "placement/risk/api/g1/east"
# Every message of a person to a workload or a placement, as the registry shows it.
MESSAGES = {
    (WORKLOAD if one.to == "Workload" else PLACEMENT, one.name): one.example
    for one in REGISTRY
    if one.sender is Sender.PERSON and one.to in ("Workload", "Placement")
}


def two_tenants() -> Fleet:
    fleet = small_fleet()
    (risk,) = fleet.tenants
    half = {"cpu": 6, "memory": "24Gi"}
    tenants = [{"id": name, "hard": half, "grants": {"east": half}} for name in ("risk", "billing")]
    assert risk.id == "risk"
    return Fleet.model_validate({**fleet.model_dump(mode="json"), "tenants": tenants})


@pytest.fixture
async def serving(plane: Plane) -> Plane:
    """risk/api serves, and a service may do everything for another tenant."""
    await (await (await plane.load(two_tenants())).host()).work()
    await plane.durable.apply(manifest())
    await plane.durable.wait("risk", "api")
    await add_operator(
        plane.databases,
        CI,
        kind=OperatorKind.SERVICE,
        rights=[Right(scope=Scope(tenant=TenantId("billing")))],
        actor=TEST,
        reason="its deployments",
    )
    return plane


async def what_exists(plane: Plane) -> tuple[Any, ...]:
    found = await read_workload(plane.databases, TenantId("risk"), WorkloadName("api"))
    assert found is not None
    tokens = {key: binding.token for key, binding in (await plane.bindings()).items()}
    return found.generation, found.revision, found.spec, found.deleting, tokens


async def refused(plane: Plane, workflow: str, name: str, payload: Mapping[str, Any]) -> str:
    """The code of the refusal of an update."""
    handle: Any = plane.durable.client.get_workflow_handle(workflow)
    with pytest.raises(WorkflowUpdateFailedError) as error:
        await handle.execute_update(name, dict(payload))
    cause = error.value.cause
    assert isinstance(cause, ApplicationError), cause
    return str(cause.details[0])


async def test_a_tenants_service_cannot_touch_another_tenants_workload(serving: Plane) -> None:
    plane, before = serving, await what_exists(serving)
    api = {**manifest(replicas=1)}
    for number, ((workflow, name), example) in enumerate(MESSAGES.items()):
        content = {**example, "actor": str(CI), "request_id": f"u-{number}"}
        content = {**content, "manifest": api} if name == "apply" else content
        assert await refused(plane, workflow, name, content) == "not_allowed", name
        handle = plane.durable.client.get_workflow_handle(workflow)
        await handle.signal(name, {**content, "request_id": f"s-{number}"})

    async def audited() -> bool:
        events, _ = await read_events(plane.databases, actor=CI, last=500)
        rejected = [event for event in events if event.action.startswith("reject message ")]
        return len(rejected) == 2 * len(MESSAGES)

    await until(audited, "each is in the audit under the name that was claimed")
    assert await what_exists(plane) == before
    status = await plane.placement()
    assert "lacks the right" in status.rejected[-1].answer, "a signal's refusal is shown"

    theirs = Durable(plane.durable.client, plane.databases, CI)
    await theirs.apply({**manifest("ledger", replicas=1), "tenant": "billing"})
    await theirs.wait("billing", "ledger")


async def test_who_is_unknown_creates_changes_and_drains_nothing(serving: Plane) -> None:
    plane, before = serving, await what_exists(serving)
    eve = Durable(plane.durable.client, plane.databases, ActorId("eve"))
    for attempt in (
        eve.apply(manifest("hers")),
        eve.scale("risk", "api", 5),
        eve.delete("risk", "api"),
        eve.rollback("risk", "api"),
        eve.replace("risk", "api"),
    ):
        with pytest.raises(RefusedError) as error:
            await attempt
        assert error.value.refusal.code == "unknown_operator"
    who = {"actor": "eve", "reason": "r", "request_id": "d"}
    await plane.durable.client.start_workflow(
        "Drain",
        {"target": {"region": "east", "kind": "node", "name": "east-general-0000"}},
        id="drain/east/east-general-0000",
        task_queue="durable-region-east",
    )
    assert await refused(plane, "drain/east/east-general-0000", "drain", who) == "unknown_operator"
    assert await what_exists(plane) == before
    hers = await read_workload(plane.databases, TenantId("risk"), WorkloadName("hers"))
    assert hers is None


async def test_a_refused_first_message_is_answered_as_soon_as_it_is_in_the_audit(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that nobody is answered only because it is over.
    monkeypatch.setattr(inbox, "AUDIT_PATIENCE", timedelta(hours=1))
    await (await plane.load()).work()
    node = NodesTarget.of_node(EAST, NodeId("east-general-0000"))
    hers = {"actor": "eve", "reason": "hers", "request_id": "one"}
    risk, name = TenantId("risk"), WorkloadName("hers")
    client: Any = plane.durable.client
    for kind, options, input, message, payload in (
        ("Workload", workload_options(risk, name), {"tenant": "risk", "workload": "hers"},
         "apply", {"manifest": manifest("hers")}),
        ("Override", override_options(OverrideId("hers")), None,
         "propose", {"kind": "policy-freeze"}),
        ("Drain", drain_options(node), {"target": node.model_dump(mode="json")}, "drain", {}),
    ):  # fmt: skip
        args = [] if input is None else [input]
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            kind, args=args, **options
        )
        # Sent once: a second message would have it look up.
        async with asyncio.timeout(DEADLINE_SECONDS):
            with pytest.raises(WorkflowUpdateFailedError) as error:
                await client.execute_update_with_start_workflow(
                    message, {**hers, **payload}, start_workflow_operation=start
                )
        assert isinstance(error.value.cause, ApplicationError)
        assert error.value.cause.details[0] == "unknown_operator"
        events, _ = await read_events(plane.databases, target=options["id"])
        assert [event.action for event in events] == [f"reject message {message}"]


ANN = ActorId("person:ann")


def signed(
    key: Ed25519PrivateKey, workflow: str, name: str, *, at: datetime, **other: Any
) -> dict[str, Any]:
    payload = {"actor": str(ANN), "reason": "r", "signed_at": at.isoformat(), **other}
    asked = OperatorMessage(workflow_id=workflow, message=name, payload=payload)
    return {**payload, "signature": sign(key, asked, DEPLOYMENT)}


async def test_what_must_be_signed_counts_only_when_signed_by_its_actor_just_now(
    serving: Plane, tmp_path: Path
) -> None:
    plane, key = serving, create_key(tmp_path / "keys", ANN)
    await set_key(plane.databases, ANN, public_key_of(key), actor=TEST, reason="hers")
    spec = {**first_policy().model_dump(mode="json"), "signed_verbs": ["scale", "retry"]}
    await publish_policy(plane.databases, 2, spec, TEST, phase=PolicyPhase.EVERYWHERE)
    before, now = await what_exists(plane), datetime.now(UTC)

    def scale(signer: Ed25519PrivateKey = key, **other: Any) -> dict[str, Any]:
        usual: dict[str, Any] = {"at": now, "request_id": "one", "replicas": 3}
        return signed(signer, WORKLOAD, "scale", **{**usual, **other})

    good = scale()
    for payload, code in (
        ({key: value for key, value in good.items() if key != "signature"}, "signature_missing"),
        (scale(Ed25519PrivateKey.generate()), "signature_wrong"),
        ({**good, "replicas": 4}, "signature_wrong"),
        ({**good, "request_id": "two"}, "signature_wrong"),
        ({**good, "actor": "ann"}, "signature_wrong"),
        (scale(at=now - timedelta(minutes=6)), "signature_old"),
        (scale(at=now + timedelta(minutes=6)), "signature_old"),
    ):
        assert await refused(plane, WORKLOAD, "scale", payload) == code
    other = signed(key, "placement/risk/other/g1/east", "retry_now", at=now, request_id="r")
    assert await refused(plane, PLACEMENT, "retry_now", other) == "signature_wrong"
    assert await refused(plane, WORKLOAD, "scale", {**good, "signature": "x"}) == "invalid"
    assert await what_exists(plane) == before

    # As the dialog of the Temporal UI sends what `durable sign` printed.
    code, output = await send(plane, "update", WORKLOAD, "scale", good)
    assert code == 0, output
    assert "generation" in output
    assert (await plane.durable.wait("risk", "api")).serving == 3
    after = await what_exists(plane)
    # Replayed, it is answered as it was, and changes nothing.
    for way in BOTH:
        assert (await send(plane, way, WORKLOAD, "scale", good))[0] == 0
    assert await what_exists(plane) == after

    # Commands and the SDK sign by themselves.
    settings = plane.settings.model_copy(update={"keys_dir": tmp_path / "keys"})
    async with await Durable.connect(settings, actor=ANN) as ann:
        assert (await ann.scale("risk", "api", 2)).spec.replicas == 2
    async with await Durable.connect(settings, actor="ann") as keyless:
        with pytest.raises(RefusedError, match="demands a signature for scale"):
            await keyless.scale("risk", "api", 1)
