"""Update handlers made from the registry of messages, and the dispatch to `on_<name>` methods."""

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any, ClassVar, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.signals.registry import Message, Sender
    from durable.workflows import timeouts
    from durable.workflows.inbox import Envelope, Inbox
    from durable.workflows.starts import NO_INPUT, of_one_input
    from durable.workflows.steps import audit_messages

C = TypeVar("C", bound="type[Receives]")

# What the Temporal UI's dialog shows of the one handler for all signals.
SIGNALS = "All messages can be sent as signals: choose Custom and type the name. None is dropped."


class Receives:
    """Whatever is sent to a workflow goes to its inbox, and is answered by its loop."""

    # Set by `accepts`.
    messages: ClassVar[Sequence[Message]]
    _inbox: Inbox

    @workflow.signal(dynamic=True, description=SIGNALS)
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        self._inbox.receive_signal(name, args)

    @workflow.update(dynamic=True, description="Any other name is refused, and recorded.")
    async def on_unknown_update(self, name: str, args: Sequence[RawValue]) -> None:
        refused = self._inbox.refuse_unknown(name, args)
        await self._inbox.until_audited()
        raise refused

    async def receive(self, message: Message, raw: RawValue) -> Any:
        return await self._inbox.receive_update(message, raw)

    async def _read_messages(self, refuse_with: ApplicationError | None = None) -> None:
        while (envelope := self._inbox.next()) is not None:
            try:
                if refuse_with is not None:
                    raise refuse_with
                await self._act_on(envelope)
            except ApplicationError as refused:
                self._inbox.refuse(envelope, refused)

    async def _settle_messages(self, refuse_with: ApplicationError | None = None) -> None:
        """Before an end: what Temporal has taken for this run is read, answered and audited."""
        inbox = self._inbox
        while True:
            await self._read_messages(refuse_with)
            await audit_messages(inbox.log)
            await inbox.let_handlers_finish()
            if inbox.is_idle and not inbox.log.unaudited:
                return
            if inbox.is_idle or inbox.waits_for_audit:
                await inbox.rest(timeouts.AUDIT_RETRY, "the audit")

    async def _act_on(self, envelope: Envelope[Any]) -> None:
        """A known request is recalled, then rights, then the effect: mostly all in one step."""
        self._inbox.accept(envelope, await getattr(self, f"on_{envelope.message.name}")(envelope))


def accepts(messages: Sequence[Message]) -> Callable[[C], C]:
    """A class decorator, below `workflow.defn`: one update for each message that people send.

    The workflow is one that `Receives`, and has `on_<name>` for every message.
    """

    def decorate(cls: C) -> C:
        for name in ("__init__", "run"):
            method = of_one_input(getattr(cls, name))
            # The SDK wants both to be the class's own, also where they are inherited.
            method.__module__, method.__qualname__ = cls.__module__, f"{cls.__name__}.{name}"
            setattr(cls, name, method)
        cls.messages = tuple(messages)
        missing = [m.name for m in messages if not hasattr(cls, f"on_{m.name}")]
        assert not missing, f"{cls.__name__} has no handler on_{missing[0]}"
        for message in messages:
            if message.sender is Sender.PERSON:
                setattr(cls, message.name, _update(message))
        return cls

    return decorate


def _update(message: Message) -> Any:
    # Raw and optional: what a dialog sends empty or wrong must reach our own checks. Decoding it
    # for a typed parameter, or missing the argument, would fail the workflow task in a loop.
    async def one_argument(self: Any, raw: RawValue = NO_INPUT) -> Any: ...

    async def handler(self: Any, raw: RawValue = NO_INPUT, *more: Any) -> Any:
        if more:
            refused = self._inbox.refuse_several(message.name, (raw, *more))
            await self._inbox.until_audited()
            raise refused
        return await self.receive(message, raw)

    handler.__name__ = handler.__qualname__ = message.name
    # The SDK takes an annotated `self` for an argument of the message.
    del handler.__annotations__["self"], one_argument.__annotations__["self"]
    # It reads one argument raw only if the function says that it takes one; several it decodes, and
    # calls the function with all of them, which must not fail: that would fail the task.
    handler.__signature__ = signature(one_argument)  # type: ignore[attr-defined]
    return workflow.update(name=message.name, description=message.description)(handler)
