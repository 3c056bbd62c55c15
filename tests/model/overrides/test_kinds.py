"""Every kind of override: what its scope must name, what it does, how long, and who agrees."""

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from durable.model.operators.rights import Verb
from durable.model.overrides.effects import Effects, Gate, OverrideScope
from durable.model.overrides.kinds import KINDS
from durable.signals.overrides import ProposeOverride
from durable.validation.problems import in_one_line, problems_in
from durable.validation.quantities import show_duration

EAST = {"region": "us-east"}
RISK = {"tenant": "risk", "workload": "risk-api"}

# Kind, scope, effect, and what becomes of them.
EFFECTS: list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ("avoid-zone", {**EAST, "zone": "a"}, {}, {"avoid_zones": ["a"]}),
    ("avoid-zone", {**EAST, "zone": "a", **RISK}, {"move": True},
     {"avoid_zones": ["a"], "moves": True}),
    ("avoid-node", {**EAST, "node": "n1"}, {"move": True}, {"avoid_nodes": ["n1"], "moves": True}),
    ("hold", RISK, {}, {"holds": True}),
    ("hold", {**RISK, **EAST}, {}, {"holds": True}),
    ("pin", {**RISK, **EAST, "zone": "b"}, {}, {"only_zone": "b"}),
    ("pin", {**RISK, **EAST, "node": "n1"}, {"move": True}, {"only_node": "n1", "moves": True}),
    ("priority-boost", {"tenant": "risk"}, {"by": 200}, {"raises_priority": 200}),
    ("emergency-quota", {**EAST, "tenant": "risk"}, {"amount": {"cpu": 2}},
     {"draw": {"cpu_millis": 2000}}),
    ("recovery-budget", EAST, {"amount": {"cpu": 2}, "incident": "inc-1"},
     {"budget": {"amount": {"cpu_millis": 2000}, "incident": "inc-1"}}),
    ("policy-freeze", {}, {}, {"freezes_policy": True}),
    ("break-glass", {"tenant": "risk"}, {"gates": ["spread", "cordon", "cordon"]},
     {"skips": ["cordon", "spread"]}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "scope", "effect", "does"), EFFECTS)
def test_a_kind_becomes_effects_that_commits_know(
    kind: str, scope: dict[str, str], effect: dict[str, Any], does: dict[str, Any]
) -> None:
    named = OverrideScope.model_validate(scope)
    assert KINDS[kind].problem_with_scope(named) is None
    made = KINDS[kind].effect.model_validate(effect).effects(named)
    assert made == Effects.model_validate(does)


def test_every_kind_is_in_the_table_above() -> None:
    assert {kind for kind, *_ in EFFECTS} == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_the_example_of_a_kind_is_one_of_it(name: str) -> None:
    kind = KINDS[name]
    scope = OverrideScope.model_validate(kind.example["scope"])
    assert kind.problem_with_scope(scope) is None
    kind.effect.model_validate(kind.example["effect"]).effects(scope)
    assert timedelta(0) < kind.default_ttl <= kind.longest_ttl
    assert Verb(kind.verb)


@pytest.mark.parametrize(
    ("scope", "says"),
    [
        ({"zone": "a"}, "scope: it names zone a but no region: name that as well"),
        ({"node": "n1"}, "scope: it names node n1 but no region: name that as well"),
        ({"workload": "api"}, "scope: it names workload api but no tenant: name that as well"),
    ],
)
def test_what_is_named_within_something_else_names_that_too(
    scope: dict[str, str], says: str
) -> None:
    proposal = {
        "actor": "ann", "reason": "INC-1", "request_id": "1", "kind": "avoid-zone", "scope": scope,
    }  # fmt: skip
    with pytest.raises(ValidationError) as wrong:
        ProposeOverride.model_validate_json(json.dumps(proposal))
    assert says in in_one_line(problems_in(wrong.value, ProposeOverride))


@pytest.mark.parametrize(
    ("kind", "scope", "says"),
    [
        (
            "avoid-zone",
            EAST,
            "region us-east: it lacks zone; name region, zone and optionally tenant, workload",
        ),
        (
            "avoid-zone",
            {**EAST, "zone": "a", "node": "n1"},
            "region us-east, zone a, node n1: avoid-zone has no use for node; name region, zone",
        ),
        ("hold", {"tenant": "risk"}, "it lacks workload; name tenant, workload and optionally"),
        ("pin", {**RISK, **EAST}, "it lacks zone or node; name region, tenant, workload, zone or"),
        ("policy-freeze", {"tenant": "risk"}, "has no use for tenant; name optionally region"),
        ("emergency-quota", {"tenant": "risk"}, "it lacks region; name region, tenant"),
    ],
)
def test_a_scope_that_names_too_little_or_too_much_is_refused(
    kind: str, scope: dict[str, str], says: str
) -> None:
    problem = KINDS[kind].problem_with_scope(OverrideScope.model_validate(scope))
    assert problem is not None
    assert says in problem


@pytest.mark.parametrize(
    ("kind", "effect"),
    [
        ("hold", {"surprise": 1}),
        ("priority-boost", {}),
        ("priority-boost", {"by": 0}),
        ("priority-boost", {"by": 1_001}),
        ("priority-boost", {"by": "200"}),
        ("emergency-quota", {"amount": {"cpu": 0}}),
        ("emergency-quota", {"amount": {"cpu": -1}}),
        ("recovery-budget", {"amount": {"cpu": 1}}),
        ("break-glass", {"gates": []}),
        ("break-glass", {"gates": ["capacity"]}),
        ("break-glass", {"gates": ["residency"]}),
    ],
)
def test_an_effect_that_a_kind_does_not_have_is_refused(kind: str, effect: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        KINDS[kind].effect.model_validate(effect)


def test_what_reaches_past_a_limit_that_protects_others_needs_a_second_person() -> None:
    alone = {name for name, kind in KINDS.items() if not kind.needs_approval}
    assert set(KINDS) - alone == {"emergency-quota", "recovery-budget", "break-glass"}
    assert [name for name, kind in KINDS.items() if not kind.extends_alone] == ["break-glass"]


@pytest.mark.parametrize("name", KINDS)
def test_no_kind_lasts_longer_than_its_maximum(name: str) -> None:
    kind = KINDS[name]
    assert kind.read_ttl(kind.longest_ttl) == kind.longest_ttl
    allowed = f"such as 90s or 30m, up to {show_duration(kind.longest_ttl)} for {name}$"
    for wrong in (kind.longest_ttl + timedelta(seconds=1), timedelta(0), "0s", "-1m", "soon", 60):
        with pytest.raises(ValueError, match=allowed):
            kind.read_ttl(wrong)


def test_no_gate_is_a_safety_invariant() -> None:
    assert {gate.value for gate in Gate} == {
        "cordon", "avoided", "hold", "taints", "crashes", "spread",
    }  # fmt: skip
