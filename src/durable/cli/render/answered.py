"""A request about one workload: its answer, and the workload followed until it has settled."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.markup import escape

from durable.cli.connections import with_durable
from durable.cli.input.options import parse_workload
from durable.cli.render.output import print_json, progress, results
from durable.cli.render.progress import WaitTarget
from durable.cli.render.rollout import RolloutReport, print_rollout
from durable.cli.render.waiting import reassure_when_interrupted, wait_for_all
from durable.client import Durable


def ask_and_follow(
    name: str,
    state_dir: Path | None,
    as_json: bool,
    ask: Callable[[Durable], Awaitable[str]],
    timeout_seconds: float | None = None,
) -> None:
    """Prints what was answered; with a timeout, follows what was requested until it is done."""
    tenant, workload = parse_workload(name)

    async def send(durable: Durable) -> tuple[str, RolloutReport | None]:
        answer = await ask(durable)
        if timeout_seconds is None:
            return answer, None
        progress.print(escape(answer))
        target = WaitTarget(tenant, workload, "serving")
        [last] = await wait_for_all(durable, [target], timeout_seconds)
        return answer, RolloutReport.of(last, await durable.generations(tenant, workload))

    with reassure_when_interrupted():
        answer, report = with_durable(state_dir, send)
    if as_json:
        followed = {} if report is None else {"rollout": report.model_dump(mode="json")}
        print_json({"workload": name, "answer": answer, **followed})
    elif report is None:
        results.print(escape(f"{name}: {answer}"))
    else:
        print_rollout(report)
