"""`durable reconcile`: starts the workflows that the authority needs and Temporal does not have."""

from durable.cli.connections import with_durable
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import (
    error_object,
    fail,
    missing_object,
    note_missing,
    print_json,
    progress,
    results,
)
from durable.cli.render.tables import print_table
from durable.client import Durable
from durable.controllers.reconciler import Reconciler, UnmanagedWorkflows
from durable.validation.text import counted


def reconcile(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Start every workload and placement that the authority knows and that does not run."""

    async def start_missing(durable: Durable) -> UnmanagedWorkflows:
        reconciler = Reconciler(durable.client, durable.databases)
        progress.print("Comparing the authority with the workflows that run ...")
        unmanaged = await reconciler.unmanaged(await reconciler.running())
        if unmanaged.ids:
            progress.print(f"Starting {counted(len(unmanaged.ids), 'workflow')} ...")
        await reconciler.start(unmanaged)
        return unmanaged

    started = with_durable(state_dir, start_missing)
    note_missing(started.missing)
    failure = None
    if started.missing:
        failure = f"{', '.join(started.missing)} could not be compared; every other region was."
    if as_json:
        content = {"started": started.ids, **missing_object(started.missing)}
        print_json({**content, **error_object("unreachable", failure)})
    elif started.ids:
        print_table(["Started again"], [[name] for name in started.ids])
    else:
        results.print("Nothing to do: every workload and placement has a workflow that runs.")
    if failure is not None:
        fail(failure)
