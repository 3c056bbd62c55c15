"""The determinism guard: Temporal's own sandbox around all of our workflow code.

In production every module is passed through, because importing ours anew for each run costs more
than the run. Here the modules of `durable.workflows` are imported inside the sandbox, helpers
included, and whatever they take from a clock, chance, files or the network raises.
"""

import logging
from contextlib import nullcontext

import pytest
from temporalio import workflow
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

# What has no state and is the same for every run: values, messages, and the names of steps.
PASSED_THROUGH = (
    "pydantic", "pydantic_core", "annotated_types",
    "durable.activities", "durable.failpoints", "durable.model", "durable.signals",
    "durable.validation",
)  # fmt: skip


def guard(monkeypatch: pytest.MonkeyPatch) -> SandboxedWorkflowRunner:
    """A runner that refuses what is not deterministic, until the test ends."""
    # A command that ran in this process before may have left its handler, which would load what it
    # prints with inside the sandbox.
    for logger in map(logging.getLogger, ("", "durable", "temporalio")):
        for handler in list(logger.handlers):
            if type(handler).__module__.startswith("durable."):
                logger.removeHandler(handler)
    # Our own modules ask to be passed through, all of them; in here nobody listens.
    monkeypatch.setattr(workflow.unsafe, "imports_passed_through", nullcontext)
    restrictions = SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
    return SandboxedWorkflowRunner(restrictions=restrictions)
