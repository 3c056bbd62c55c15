"""A kind of override: what it is about, what it does, for how long, and who has to agree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from durable.model.overrides.effects import Effects, OverrideScope
from durable.validation.quantities import read_duration
from durable.validation.value import Value


class EffectInput(Value):
    """What a person says about the effect, beside the scope."""

    def effects(self, scope: OverrideScope) -> Effects:
        """What it does in this scope."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind; the registry lists them all."""

    name: str
    sentence: str
    effect: type[EffectInput]
    default_ttl: timedelta
    longest_ttl: timedelta
    # The fields of the scope that must be named, and those that may be.
    needs: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    # Of these at least one.
    needs_one_of: tuple[str, ...] = ()
    # Whether a second person has to agree before it does anything.
    needs_approval: bool = False
    # Whether its proposer may extend it alone.
    extends_alone: bool = True
    # The right that proposing it takes; see model.rights.
    verb: str = "override"
    # A scope and an effect as the documents show them.
    example: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def problem_with_scope(self, scope: OverrideScope) -> str | None:
        """What is wrong with the scope of an override of this kind, if anything."""
        missing = [name for name in self.needs if name not in scope.named]
        known = (*self.needs, *self.needs_one_of, *self.allows)
        extra = [name for name in scope.named if name not in known]
        has_one = not self.needs_one_of or any(name in scope.named for name in self.needs_one_of)
        if not missing and not extra and has_one:
            return None
        if missing:
            wrong = f"it lacks {' and '.join(missing)}"
        elif extra:
            wrong = f"{self.name} has no use for {' and '.join(extra)}"
        else:
            wrong = f"it lacks {' or '.join(self.needs_one_of)}"
        return f"{scope}: {wrong}; name {self.scope_rule.removeprefix('a scope with ')}"

    @property
    def scope_rule(self) -> str:
        """What its scope must and may name, in words."""
        must = list(self.needs)
        if self.needs_one_of:
            must.append(" or ".join(self.needs_one_of))
        rules = [f"a scope with {', '.join(must)}"] if must else []
        if self.allows:
            rules.append(
                f"{'and ' if rules else 'a scope with '}optionally {', '.join(self.allows)}"
            )
        return " ".join(rules) or "an empty scope"

    def read_ttl(self, value: object) -> timedelta:
        """How long it is to last, as people write it, within the maximum."""
        try:
            return read_duration(value, self.longest_ttl)
        except ValueError as error:
            raise ValueError(f"{error} for {self.name}") from None
