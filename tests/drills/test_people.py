"""Whoever has a key signs everything, so a stack to rehearse on has to know the key."""

from pathlib import Path

from durable.authority.db.connection import Databases
from durable.authority.operators.changes import read_operator
from durable.drills.people import use_own_key
from durable.model.operators.signature import public_key_of
from durable.settings import Settings
from durable.temporal.signing import create_key
from tests.authority.world import TEST


async def test_the_key_of_whoever_rehearses_counts_in_the_stack(
    database_url: str, tmp_path: Path
) -> None:
    settings = Settings(actor=TEST, keys_dir=tmp_path / "keys")
    async with Databases(database_url) as databases:
        await use_own_key(databases, settings)
        assert (await read_operator(databases, TEST)).public_key is None, "there is none"
        key = create_key(tmp_path / "keys", TEST)
        for _ in range(2):  # the stack is started again
            await use_own_key(databases, settings)
            assert (await read_operator(databases, TEST)).public_key == public_key_of(key)
