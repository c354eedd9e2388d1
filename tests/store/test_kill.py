"""``kill -9`` at any moment loses nothing that was answered for."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.store.samples import announcement, beside, content, files_under, in_store, stored_bytes

from sealmail_protocol.keys import data_key
from sealmail_store import BlockStore

ROOT = Path(__file__).parents[2]


def _store_until_killed(directory: Path, first: int, seconds: float) -> list[int]:
    """Let the storing program run for ``seconds`` after its first answer; return its answers."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.store.storing_program", str(directory), str(first)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    with program:
        assert program.stdout is not None
        begin = program.stdout.readline()
        time.sleep(seconds)
        program.kill()
        return [int(line) for line in (begin + program.stdout.read()).split()]


def _check(directory: Path, answered: list[int]) -> None:
    """Assert that every answered block is there and nothing but stored data lies about."""

    async def look(store: BlockStore) -> None:
        for number in answered:
            if number % 2:
                raw = content(number)
                assert await stored_bytes(store, raw) == raw
            else:
                mail = announcement(number)
                assert await beside(store, mail) == (mail,)
        counts = await store.read(lambda view: view.counts())
        stored = counts["data"].entries if "data" in counts else 0
        assert len(files_under(directory)) == stored

    in_store(directory, look)


def _kill_and_check(directory: Path, kills: int) -> None:
    moments = random.Random(2026)  # noqa: S311 - moments are no secret
    answered: list[int] = []
    for kill in range(kills):
        answers = _store_until_killed(directory, kill * 1_000_000, moments.uniform(0, 0.15))
        assert answers
        _check(directory, answers)
        answered += answers
    _check(directory, answered)
    assert {data_key(content(number)).hex for number in answered if number % 2} <= {
        path.name for path in files_under(directory)
    }


def test_ten_kills_lose_nothing(tmp_path: Path) -> None:
    """Ten kills of a busy writer: every answered block is there, byte for byte."""
    _kill_and_check(tmp_path, 10)


@pytest.mark.long
def test_a_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    """The same, a hundred times."""
    _kill_and_check(tmp_path, 100)
