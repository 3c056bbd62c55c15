"""Whether an actor may do what a message asks for, by the authority's own rows and clock.

The actor in a payload is only a claim. Rights are looked up in the transaction that makes the
change, and where the policy demands it the message has to prove with a signature who sent it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pydantic import AwareDatetime, TypeAdapter, ValidationError
from sqlalchemy import text

from durable.authority.db.connection import AuthorityError, Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.operators.ledger import (
    KEPT_DAYS,
    LedgerSide,
    RecordedRequest,
    RequestLedger,
    check_proof,
)
from durable.authority.operators.rows import NAMED_OPERATORS, names_of, operator_of
from durable.model.ids import ActorId, RegionId
from durable.model.operators.rights import (
    SIGNATURE_LASTS,
    SIGNER_AHEAD,
    CountedRequest,
    Operator,
    OperatorMessage,
    Scope,
    SlotEffect,
    Verb,
    covers,
)
from durable.model.operators.signature import is_signed_by
from durable.model.policy.policy import Policy
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.text import show_moment

# The revision that came into force everywhere last, until another one has replaced it everywhere:
# one that is only published must not lift the demand, nor one that is still watched in a region.
DEMANDING = """
              FROM global.policies JOIN global.policy_rollouts USING (revision)
             WHERE in_force_at IS NOT NULL AND phase <> 'rolled_back'
             ORDER BY in_force_at DESC LIMIT 1
"""

_READ = text(f"""
    SELECT clock_timestamp() AS now,
           (SELECT id FROM global.deployment) AS deployment,
           (SELECT spec -> 'signed_verbs' {DEMANDING}) AS signed_verbs,
           (SELECT array_agg(operator ORDER BY operator)
              FROM (SELECT DISTINCT operator
                      FROM global.operator_rights JOIN global.operators USING (operator)
                     WHERE verb IN ('*', 'operators') AND tenant = '' AND region = ''
                       AND removed_at IS NULL
                     ORDER BY operator LIMIT 3) AS granter) AS granters,
           (SELECT coalesce(jsonb_agg(to_jsonb(actor)), '[]') FROM ({NAMED_OPERATORS}) AS actor)
               AS operators
""")
_DEPLOYMENT = text("SELECT id FROM global.deployment")
_MOMENT: TypeAdapter[datetime] = TypeAdapter(AwareDatetime)
_DEFAULT: tuple[Verb, ...] = Policy.model_fields["signed_verbs"].default
RIGHTS_SHOWN = 5


async def authorize(
    connection: AsyncConnection,
    message: OperatorMessage,
    verb: Verb,
    scope: Scope,
    *,
    needs_approval: bool = False,
) -> Operator:
    """Who asks; refused if that one may not do this here, or has not signed what must be signed."""
    authorizer = await Authorizer.read(connection, [message.actor])
    return authorizer.check(message, verb, scope, needs_approval=needs_approval)


async def require_right(
    connection: AsyncConnection, actor: ActorId, verb: Verb, scope: Scope
) -> None:
    """The same for a command that writes the authority itself, and so carries no signature."""
    (await Authorizer.read(connection, [actor])).check_right(actor, verb, scope)


@global_transaction("durable_reader", "read the rights of {actor}")
async def check_right(
    connection: AsyncConnection, actor: ActorId, verb: Verb, scope: Scope
) -> None:
    """`require_right`, for a change whose own transaction is in a region."""
    await require_right(connection, actor, verb, scope)


async def check_message(
    databases: Databases, message: OperatorMessage, verb: Verb, scope: Scope
) -> str | None:
    """`authorize`, for a message that is acted on in a region.

    Its region counts it together with its effect; if it was, it gets its first answer, and takes
    no right any more.
    """
    recorded = None
    if scope.region is not None:
        recorded = await _find_regional(databases, scope.region, message)
    if recorded is None:
        await _judge(databases, message, verb, scope)
        return None
    answered = recorded.answer_to(message)
    if recorded.is_signed:
        await _check_proof(databases, message)
    # What became of an order that has no sentence of its own, its region says.
    return recorded.sentence_to(message) if "answer" in answered else None


@global_transaction("durable_reader", "judge a message of {message.actor}")
async def _judge(
    connection: AsyncConnection, message: OperatorMessage, verb: Verb, scope: Scope
) -> None:
    await authorize(connection, message, verb, scope)


@global_transaction("durable_messages", "count a message of {message.actor}")
async def count_message(
    connection: AsyncConnection,
    message: OperatorMessage,
    verb: Verb,
    scope: Scope,
    answer: str | None,
    effect: SlotEffect,
) -> CountedRequest | None:
    """`authorize`, for a message that is acted on in a workflow's memory alone; None if it is new.

    It is counted with its answer and with what that promises: the answer may be lost, or the
    memory, and whoever sends it again is to find it done.
    """
    ledger = await RequestLedger.read(connection, [message])
    if ledger.find(message) is None:
        await authorize(connection, message, verb, scope)
        if answer is None:
            return None  # it is refused, so its id stays free
        ledger.record(message, {"answer": answer, "effect": effect.model_dump(mode="json")})
        if await ledger.write(connection, kept_days=KEPT_DAYS):
            return None
        # Another delivery of the same request came first.
        ledger = await RequestLedger.read(connection, [message])
    answered, entry = ledger.recall(message), ledger.find(message)
    assert answered is not None, "it was counted"
    assert entry is not None, "it was counted"
    return CountedRequest(
        answer=answered["answer"],
        repeated=entry.sentence_to(message),
        effect=SlotEffect.read(answered["effect"]),
    )


@global_transaction("durable_reader", "check who sends {message.request_id}")
async def _check_proof(connection: AsyncConnection, message: OperatorMessage) -> None:
    authorizer = await Authorizer.read(connection, [message.actor])
    operator = authorizer.operators.get(str(message.actor))
    key = None if operator is None else operator.public_key
    check_proof(message, key, authorizer.deployment)


async def _find_regional(
    databases: Databases, region: RegionId, message: OperatorMessage
) -> RecordedRequest | None:
    """None also if the region does not answer: nothing is done there before it does."""
    try:
        return await _read_regional(databases, region, message)
    except AuthorityError:
        return None


@regional_transaction("durable_reader", "read a request's answer in {region}")
async def _read_regional(
    connection: AsyncConnection, region: RegionId, message: OperatorMessage
) -> RecordedRequest | None:
    ledger = await RequestLedger.read(connection, [message], LedgerSide.REGIONAL)
    return ledger.find(message)


@global_transaction("durable_reader", "read which deployment this is")
async def read_deployment(connection: AsyncConnection) -> str:
    """What a signature names beside the workflow, so that it counts nowhere else."""
    return str((await connection.execute(_DEPLOYMENT)).scalar_one())


class NotAllowedError(RefusedError):
    """The actor has no right to what the message asks for, or did not prove who it is."""

    def __init__(
        self, actor: ActorId, verb: Verb, scope: Scope, code: RefusalCode, sentence: str
    ) -> None:
        super().__init__(code, sentence)
        self.actor, self.verb, self.scope = actor, verb, scope


@dataclass(frozen=True)
class Authorizer:
    """What is needed to judge the messages of some actors, read at once."""

    operators: Mapping[str, Operator]
    signed_verbs: frozenset[Verb]
    # Some who can grant rights, so that a refusal says whom to ask.
    granters: tuple[str, ...]
    now: datetime
    deployment: str

    @classmethod
    async def read(cls, connection: AsyncConnection, actors: Iterable[ActorId]) -> Self:
        row = (await connection.execute(_READ, {"operators": names_of(actors)})).one()
        listed = row.signed_verbs
        signed = _DEFAULT if listed is None else [verb for verb in Verb if verb.value in listed]
        operators = {str(actor["operator"]): operator_of(actor) for actor in row.operators}
        return cls(operators, frozenset(signed), tuple(row.granters or ()), row.now, row.deployment)

    def check(
        self, message: OperatorMessage, verb: Verb, scope: Scope, *, needs_approval: bool = False
    ) -> Operator:
        operator = self.check_right(message.actor, verb, scope)
        self.check_signature(operator, message, verb, scope, needs_approval=needs_approval)
        return operator

    def check_signature(
        self,
        operator: Operator,
        message: OperatorMessage,
        verb: Verb,
        scope: Scope,
        *,
        needs_approval: bool = False,
    ) -> None:
        """Refuses a signature that is wrong, and none where one is due.

        Where a second person proves who approves, the first one proves who proposes: else one
        person proposes in another's name and approves in their own.
        """
        try:
            if message.is_signed:
                _check_signature(operator, message, self.deployment, self.now)
            elif verb in self.signed_verbs:
                raise signature_missing(
                    operator, message, f"The policy demands a signature for {verb}"
                )
            elif needs_approval and Verb.APPROVE in self.signed_verbs:
                why = "The policy demands a signature for approve, and so for what needs approval"
                raise signature_missing(operator, message, why)
        except RefusedError as error:
            refusal = error.refusal
            raise NotAllowedError(
                operator.id, verb, scope, refusal.code, refusal.sentence
            ) from None

    def check_right(self, actor: ActorId, verb: Verb, scope: Scope) -> Operator:
        operator = self.operators.get(str(actor))
        if operator is None or operator.removed_at is not None:
            raise self._unknown(actor, verb, scope, operator)
        if not covers(operator.rights, verb, scope):
            raise self._not_allowed(operator, verb, scope)
        return operator

    def _unknown(
        self, actor: ActorId, verb: Verb, scope: Scope, removed: Operator | None
    ) -> NotAllowedError:
        why = "is not an operator" if removed is None else "was removed as an operator"
        sentence = (
            f"{actor} {why}, and this takes the right `{verb}` on {scope}; {self._who} can add it: "
            f"`durable operator add {actor} --right {verb}{_options(scope)}`."
        )
        code = RefusalCode.UNKNOWN_OPERATOR
        return NotAllowedError(actor, verb, scope, code, sentence)

    def _not_allowed(self, operator: Operator, verb: Verb, scope: Scope) -> NotAllowedError:
        shown = [str(right) for right in operator.rights[:RIGHTS_SHOWN]]
        more = ["more"] if len(operator.rights) > RIGHTS_SHOWN else []
        sentence = (
            f"{operator.id} lacks the right `{verb}` on {scope}; {self._who} can grant it: "
            f"`durable operator grant {operator.id} {verb}{_options(scope)}`. It has: "
            f"{', '.join(shown + more) or 'no rights'}."
        )
        return NotAllowedError(operator.id, verb, scope, RefusalCode.NOT_ALLOWED, sentence)

    @property
    def _who(self) -> str:
        """Whom to ask for a right."""
        return " or ".join(self.granters) or "an operator with the right `operators`"


def _options(scope: Scope) -> str:
    named = scope.model_dump(exclude_none=True)
    return "".join(f" --{name} {value}" for name, value in named.items())


def signature_missing(operator: Operator, message: OperatorMessage, why: str) -> RefusedError:
    """The refusal of a message that is not signed, with the way to sign it."""
    key = (
        f"the key of {operator.id}"
        if operator.public_key
        else f"a key of {operator.id}, which `durable operator key` makes"
    )
    return RefusedError(
        RefusalCode.SIGNATURE_MISSING,
        f"{why[:200]}, by {key}. Commands and the SDK sign by "
        "themselves where the key's file is; in the Temporal UI, paste what "
        f"`durable sign {message.workflow_id} {message.message} JSON` prints.",
    )


def _check_signature(
    operator: Operator, message: OperatorMessage, deployment: str, now: datetime
) -> None:
    if operator.public_key is None:
        raise RefusedError(
            RefusalCode.SIGNATURE_WRONG,
            f"The message is signed, but {operator.id} has no key here; register it with "
            f"`durable operator key {operator.id}`, then sign again.",
        )
    if not is_signed_by(operator.public_key, message, deployment):
        raise RefusedError(
            RefusalCode.SIGNATURE_WRONG,
            f"The signature is not one by the key of {operator.id} over this {message.message} to "
            f"{message.workflow_id} here; sign exactly what is sent, with `durable sign` against "
            "this deployment.",
        )
    signed_at = _signed_at(message)
    if signed_at is None or not -SIGNER_AHEAD <= now - signed_at <= SIGNATURE_LASTS:
        when = "without a time" if signed_at is None else f"at {show_moment(signed_at)}"
        raise RefusedError(
            RefusalCode.SIGNATURE_OLD,
            f"It was signed {when}, and here it is {show_moment(now)}; a signature counts "
            f"for {SIGNATURE_LASTS.seconds // 60} minutes. Sign it again; if the times are far "
            "apart, set the clock of the machine that signs.",
        )


def _signed_at(message: OperatorMessage) -> datetime | None:
    try:
        return _MOMENT.validate_python(message.payload.get("signed_at"))
    except ValidationError:
        return None
