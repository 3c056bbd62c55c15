"""Commands that send a message to one workload, and follow it until it serves what is wanted."""

from typing import TYPE_CHECKING, Any

from rich.markup import escape

from durable.cli.input.options import WorkloadArgument, parse_workload
from durable.cli.render.output import print_json, progress, results
from durable.cli.render.rollout import RolloutReport, print_rollout
from durable.cli.verbs import MessageCommand, VerbInput, message
from durable.signals.names import WORKLOAD

if TYPE_CHECKING:
    from durable.client import Durable


def workload_command(
    path: str, name: str, sentence: str, *, is_followed: bool = False
) -> MessageCommand:
    """The command of one row."""
    return MessageCommand(
        path=path,
        message=message(WORKLOAD, name),
        sentence=sentence,
        target={"name": (WorkloadArgument,)},
        parse=parse_workload,
        send=lambda durable, given: durable.send(given.target, name, **given.fields),
        follow=_follow if is_followed else None,
        conclude=_conclude,
    )


async def _follow(durable: "Durable", given: VerbInput, answer: str) -> RolloutReport | None:
    if given.timeout_seconds is None:
        return None
    # Imported here: this loads Temporal, which other commands of the same group do not need.
    from durable.cli.render.progress import WaitTarget
    from durable.cli.render.waiting import wait_for_all

    progress.print(escape(answer))
    tenant, workload = given.target
    target = WaitTarget(tenant, workload, "serving")
    [last] = await wait_for_all(durable, [target], given.timeout_seconds)
    return RolloutReport.of(last, await durable.generations(tenant, workload))


def _conclude(given: VerbInput, answer: str, report: RolloutReport | None) -> None:
    name = "/".join(given.target)
    if given.as_json:
        rollout: dict[str, Any] = {}
        if report is not None:
            rollout = {"rollout": report.model_dump(mode="json")}
        print_json({"workload": name, "answer": answer, **rollout})
    elif report is None:
        results.print(escape(f"{name}: {answer}"))
    else:
        print_rollout(report)
