"""A real node as the options of `durable agent` describe it."""

from collections.abc import Sequence

import typer
from pydantic import TypeAdapter

from durable.agent.nodes import DRIVER, PROCESS
from durable.cli.input.options import parse_option
from durable.model.fleet.labels import LabelKey, Labels, LabelValue, Taint, TaintEffect
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import DeviceId, NodeId, PoolId, RegionId, ZoneId
from durable.model.resources import Capacity

_LABELS: TypeAdapter[Labels] = TypeAdapter(Labels)


def parse_node_spec(
    name: str,
    region: RegionId,
    zone: str | None,
    pool: str,
    *,
    cpu: str | None,
    memory: str | None,
    gpu: int,
    labels: Sequence[str] | None,
    taints: Sequence[str] | None,
) -> NodeSpec:
    """Parses the options of a node that runs processes; errors name the option."""
    given = {"--zone": zone, "--cpu": cpu, "--memory": memory}
    missing = [option for option, value in given.items() if value is None]
    if missing:
        raise typer.BadParameter(f"a real node also needs {', '.join(missing)}")
    capacity = {"cpu": cpu, "memory": memory, "gpu": gpu}
    return NodeSpec(
        id=parse_option("--node", NodeId, name),
        region=region,
        zone=parse_option("--zone", ZoneId, zone or ""),
        pool=parse_option("--pool", PoolId, pool),
        capacity=parse_option("--cpu, --memory, --gpu", Capacity.model_validate, capacity),
        devices=tuple(DeviceId(f"gpu-{number}") for number in range(gpu)),
        labels=parse_option("--label", _labels, labels or ()),
        taints=tuple(parse_option("--taint", _taint, text) for text in taints or ()),
        dedicated_to=None,
    )


def _labels(texts: Sequence[str]) -> Labels:
    pairs = dict(_pair(text, "KEY=VALUE") for text in texts)
    # Always set: simulating agents skip a node with this label.
    return _LABELS.validate_python(pairs | {DRIVER: PROCESS})


def _taint(text: str) -> Taint:
    pair, colon, effect = text.rpartition(":")
    if not colon or effect not in list(TaintEffect):
        allowed = f"KEY=VALUE:EFFECT with EFFECT one of {', '.join(TaintEffect)}"
        raise ValueError(f"got {text!r}; allowed: {allowed}")
    key, value = _pair(pair, "KEY=VALUE:EFFECT")
    return Taint(key=key, value=value, effect=TaintEffect(effect))


def _pair(text: str, form: str) -> tuple[LabelKey, LabelValue]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"got {text!r}; allowed: {form}")
    return LabelKey(key), LabelValue(value)
