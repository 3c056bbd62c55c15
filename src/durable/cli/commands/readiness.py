"""`durable readiness`: whether critical work would come back if a region were lost now."""

import typer

from durable.cli.connections import with_reader
from durable.cli.input.options import AsJson, RegionOption, StateDir, parse_region
from durable.cli.render.output import print_json
from durable.cli.render.readiness import print_outlooks
from durable.model.recovery.readiness import LossOutlook


def readiness(
    region: RegionOption = None, state_dir: StateDir = None, as_json: AsJson = False
) -> None:
    """Show what the loss of a region would mean now; exit 1 if the objective would be missed."""
    region_id = parse_region(region)
    outlooks = with_reader(state_dir, lambda reader: reader.readiness(region_id))
    is_met = all(one.is_met for one in outlooks)
    if as_json:
        content = [_content(one) for one in outlooks]
        print_json({"is_met": is_met, "regions": content})
    else:
        print_outlooks(outlooks)
    if not is_met:
        raise typer.Exit(1)


def _content(outlook: LossOutlook) -> dict[str, object]:
    workloads = [
        {**one.model_dump(mode="json"), "is_met": one.is_met, "missing": one.missing}
        for one in outlook.workloads
    ]
    return {**outlook.model_dump(mode="json"), "is_met": outlook.is_met, "workloads": workloads}
