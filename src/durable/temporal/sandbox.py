"""The workflow sandbox, made cheap: it refuses clocks, randomness and I/O in workflows."""

from typing import Any

from temporalio.converter import StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import Info

_NO_STORE = StorageDriverStoreContext(target=None)


def sandbox() -> WorkflowRunner:
    """A sandbox that imports no module again, which would cost more than the workflow itself."""
    everything = SandboxRestrictions.default.with_passthrough_all_modules()
    return _PlainSandbox(restrictions=everything)


class _PlainSandbox(SandboxedWorkflowRunner):
    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return _PlainInstance(super().create_instance(det), det.info)


class _PlainInstance(WorkflowInstance):
    """A workflow whose payloads are converted without regard to what they belong to.

    The SDK asks the sandbox for the context of each payload six times, in case a codec or a store
    needs it. We have neither, and asking costs a sixth of a worker's time.
    """

    def __init__(self, inner: WorkflowInstance, info: Info) -> None:
        self._inner, self._info = inner, info

    def activate(self, act: Any) -> Any:
        return self._inner.activate(act)

    def get_serialization_context(self, command_info: Any) -> None:
        return None

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        return _NO_STORE

    def get_info(self) -> Info:
        return self._info

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()
