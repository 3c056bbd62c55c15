"""Scheduler policies as they are written down, refused unless every weight names a score."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import yaml
from pydantic import ValidationError

from durable.model.operators.rights import NEVER_SIGNED, Verb
from durable.model.policy.policy import Policy
from durable.scheduling.scores import SCORES
from durable.validation.problems import Location, dotted, problems_in, sentences

_FIRST = "policy-1.yaml"


class PolicyError(ValueError):
    """A policy that cannot be used, with a sentence for each thing that is wrong with it."""


def first_policy() -> Policy:
    """Revision 1, which a new fleet starts with."""
    return read_policy(yaml.safe_load(files("durable.scheduling").joinpath(_FIRST).read_text()))


def read_policy(data: Mapping[str, Any]) -> Policy:
    """A policy from plain data, such as a published revision's content."""
    try:
        policy = Policy.model_validate(data)
    except ValidationError as error:
        raise PolicyError(sentences(problems_in(error, Policy))) from error
    check_policy(policy)
    return policy


def check_policy(policy: Policy) -> None:
    """Refuses what no type can: names that no score has, and waits that end before they begin."""
    problems = policy_problems(policy)
    if problems:
        raise PolicyError(" ".join(f"field {dotted(where)}: {what}" for where, what in problems))


def policy_problems(policy: Policy) -> list[tuple[Location, str]]:
    """The same with the place of each, for whoever knows its line."""
    known = [score.name for score in SCORES]
    problems: list[tuple[Location, str]] = [
        (("weights", name), f"unknown score {name}; known scores: {', '.join(known)}")
        for name in sorted(set(policy.weights) - set(known))
    ]
    if not any(policy.weights.values()):
        problems.append(
            (
                ("weights",),
                "every weight is 0, so that no score would count and nodes were chosen by chance; "
                "allowed: at least one above 0",
            )
        )
    if policy.retry_first_seconds > policy.retry_longest_seconds:
        problems.append(
            (
                ("retry_first_seconds",),
                f"got {policy.retry_first_seconds}; "
                f"allowed: up to retry_longest_seconds, {policy.retry_longest_seconds}",
            )
        )
    problems += _colliding_classes(policy)
    unsigned = sorted(NEVER_SIGNED.intersection(policy.signed_verbs))
    if unsigned:
        allowed = ", ".join(verb for verb in Verb if verb not in NEVER_SIGNED)
        problems.append(
            (
                ("signed_verbs",),
                f"{', '.join(unsigned)}: only commands do that, which carry no signature, so it "
                f"cannot be demanded; allowed: {allowed}",
            )
        )
    return problems


def _colliding_classes(policy: Policy) -> list[tuple[Location, str]]:
    """Priorities make three classes: best effort below one bound, critical from another one on.

    What is in both, or is raised from one into the other, has no class that anybody could rely on.
    """
    critical = policy.recovery.critical_priority
    problems: list[tuple[Location, str]] = []
    if policy.sampling.below_priority > critical:
        problems.append(
            (
                ("sampling", "below_priority"),
                f"got {policy.sampling.below_priority}; allowed: up to recovery.critical_priority, "
                f"{critical}, or critical work would be best effort as well",
            )
        )
    if policy.urgency.most and policy.urgency.ceiling >= critical:
        problems.append(
            (
                ("urgency", "ceiling"),
                f"got {policy.urgency.ceiling}; allowed: below recovery.critical_priority, "
                f"{critical}, or a deadline would make any job critical",
            )
        )
    return problems
