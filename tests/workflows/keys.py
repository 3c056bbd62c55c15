"""People with key files of their own, who sign what they send."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durable.authority.operators.changes import set_key
from durable.client import Durable
from durable.model.ids import ActorId
from durable.model.operators.signature import public_key_of
from durable.temporal.signing import Signer, create_key, signer_of
from tests.workflows.plane import Plane


@dataclass(frozen=True)
class Person:
    """Somebody whose public key the authority knows."""

    actor: ActorId
    keys: Path
    signer: Signer

    @classmethod
    async def make(cls, plane: Plane, folder: Path, name: str) -> "Person":
        actor, keys = ActorId(name), folder / name
        key = create_key(keys, actor)
        known = public_key_of(key)
        await set_key(plane.databases, actor, known, actor=ActorId("test"), reason="they told me")
        return cls(actor, keys, await signer_of(plane.databases, key))

    def unsigned(self, request: str, **fields: Any) -> dict[str, Any]:
        """A payload as this person would write it."""
        return {"actor": str(self.actor), "reason": "INC-42", "request_id": request, **fields}

    def signed(self, workflow: str, message: str, request: str, **fields: Any) -> dict[str, Any]:
        """The payload that `durable sign` prints."""
        return self.signer.sign_content(workflow, message, self.unsigned(request, **fields))

    @asynccontextmanager
    async def connected(self, plane: Plane) -> AsyncGenerator[Durable]:
        """The SDK with this person's key file."""
        settings = plane.settings.model_copy(update={"keys_dir": self.keys})
        async with await Durable.connect(settings, actor=self.actor) as durable:
            yield durable

    async def run(self, plane: Plane, *words: str) -> tuple[int, str]:
        """`durable WORDS` in this person's terminal: the exit code, and what it answers."""
        settings = plane.settings
        environment = {
            "DURABLE_ACTOR": str(self.actor),
            "DURABLE_KEYS_DIR": str(self.keys),
            "DURABLE_STATE_DIR": str(settings.state_dir),
            "DURABLE_DATABASE_URL": settings.require_database_url(),
            "DURABLE_TEMPORAL_ADDRESS": settings.require_temporal_address(),
            "DURABLE_TEMPORAL_NAMESPACE": settings.temporal_namespace,
        }
        started = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("durable"),
            *words,
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await started.communicate()
        assert started.returncode is not None
        return started.returncode, output.decode()
