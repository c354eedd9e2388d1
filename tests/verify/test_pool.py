"""The pool under an event loop: answers, deaths, deadlines, bounds."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.verify.conftest import SPEC_SIGNER, VECTORS, Sample, spec_certificate

from sealmail_verify import BadSignature, Undecided, VerifierPool

CLAIM = (VECTORS / "ac_sample.asc").read_bytes()


def _slow_gpg(directory: Path) -> str:
    """Make a gpg program that notes its worker's process and its own, and then sleeps."""
    program = directory / "gpg"
    program.write_text(
        f'#!/bin/sh\necho $PPID $$ > "{directory}/new"\nmv "{directory}/new" "{directory}/pids"\n'
        "exec sleep 60\n"
    )
    program.chmod(0o755)
    return str(program)


def _pids(directory: Path) -> tuple[int, int]:
    """Wait for the slow gpg to start; return the worker's process id and gpg's."""
    ends = time.monotonic() + 10
    while not (directory / "pids").exists():
        assert time.monotonic() < ends, "gpg was not started"
        time.sleep(0.01)
    worker, gpg = (directory / "pids").read_text().split()
    return int(worker), int(gpg)


def _runs(pid: int) -> bool:
    """Tell whether a process lives; one that is dead and not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_pool_verifies_and_refuses(samples: dict[str, Sample]) -> None:
    """Results and reasons come through unchanged, many at a time."""

    async def run() -> None:
        async with VerifierPool(2) as pool:
            texts = [*samples.values()] * 3
            found = await asyncio.gather(
                *(pool.verify(one.text, one.certificate, one.expected) for one in texts)
            )
            assert [one.signer for one in found] == [one.expected for one in texts]
            assert (await pool.verify(CLAIM, spec_certificate(), SPEC_SIGNER)).revoked is False
            with pytest.raises(BadSignature, match="does not begin"):
                await pool.verify(b"", spec_certificate(), SPEC_SIGNER)
            with pytest.raises(BadSignature, match="more than"):
                await pool.verify(b" " * 2**20, spec_certificate(), SPEC_SIGNER)
        with pytest.raises(Undecided, match="closed"):
            await pool.verify(CLAIM, spec_certificate(), SPEC_SIGNER)

    asyncio.run(run())


def test_a_killed_worker_costs_one_text(samples: dict[str, Sample], tmp_path: Path) -> None:
    """The text it had is refused with a reason; the next one is verified."""

    async def run() -> None:
        one = samples["ed25519"]
        async with VerifierPool(1, gpg=_slow_gpg(tmp_path)) as pool:
            stuck = asyncio.create_task(pool.verify(CLAIM, spec_certificate(), SPEC_SIGNER))
            next_one = asyncio.create_task(pool.verify(one.text, one.certificate, one.expected))
            worker, gpg = await asyncio.to_thread(_pids, tmp_path)
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(Undecided, match="died over this text"):
                await stuck
            assert (await next_one).signer == one.expected
            assert not _runs(gpg)

    asyncio.run(run())


def test_a_slow_text_meets_its_deadline(samples: dict[str, Sample], tmp_path: Path) -> None:
    """Its process is ended with its children, and the pool goes on."""

    async def run() -> None:
        one = samples["ed25519"]
        async with VerifierPool(1, gpg=_slow_gpg(tmp_path), deadline=1.0) as pool:
            with pytest.raises(Undecided, match="in time"):
                await pool.verify(CLAIM, spec_certificate(), SPEC_SIGNER)
            assert not any(_runs(pid) for pid in _pids(tmp_path))
            assert (
                await pool.verify(one.text, one.certificate, one.expected)
            ).signer == one.expected

    asyncio.run(run())


def test_cancelling_frees_the_worker(samples: dict[str, Sample], tmp_path: Path) -> None:
    """A caller that goes away leaves no half-read answer to the next."""

    async def run() -> None:
        one = samples["ed25519"]
        async with VerifierPool(1, gpg=_slow_gpg(tmp_path)) as pool:
            stuck = asyncio.create_task(pool.verify(CLAIM, spec_certificate(), SPEC_SIGNER))
            await asyncio.to_thread(_pids, tmp_path)
            stuck.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stuck
            assert (
                await pool.verify(one.text, one.certificate, one.expected)
            ).signer == one.expected

    asyncio.run(run())


def test_the_queue_is_bounded(samples: dict[str, Sample]) -> None:
    """Past the bound a text is turned away at once."""

    async def run() -> None:
        one = samples["ed25519"]
        async with VerifierPool(1, max_waiting=2) as pool:
            answers = await asyncio.gather(
                *(pool.verify(one.text, one.certificate, one.expected) for _ in range(6)),
                return_exceptions=True,
            )
        assert any(isinstance(answer, Undecided) for answer in answers)
        assert any(not isinstance(answer, BaseException) for answer in answers)

    asyncio.run(run())
