"""Prices, retries, large mail, watching, searching and the doctor, as a user meets them."""

import asyncio
import json
import os
import pty
import resource
import secrets
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from tests.end_to_end.programs import SECONDS, Server, User, letter_to

from sealmail_client.desk import open_desk, utc_now
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.outbox import Stage
from sealmail_client.profile import Home
from sealmail_client.sending import Sender
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_pow import Difficulty, mint
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.compose import make_announcement
from sealmail_protocol.keys import KeyId, data_key, mailbox_key
from sealmail_protocol.replies import Word
from sealmail_protocol.stamps import message_challenge
from sealmail_verify import Undecided, Verification, Verifier


def test_the_price_is_told_first_and_too_high_a_one_is_not_paid(alice: User, bob: User) -> None:
    """What is not sent is not in the outbox either."""
    sent = alice.sends([bob], "Cheap enough", "--max-price", "bd,20,2")
    assert sent.exit_code == 0
    assert "bob@b.example asks for bd,20,2: less than 0.1 s" in sent.complaint
    before = len(alice.does("outbox", "--json").value)
    refused = alice.sends([bob], "Too dear", "--max-price", "bd,19,2")
    assert refused.exit_code == 7
    assert "--max-price" in refused.complaint
    assert len(alice.does("outbox", "--json").value) == before


def test_held_mail_leaves_later_padded_and_can_be_cancelled_until_then(
    alice: User, bob: User, place: Path
) -> None:
    """It is no failure; the ledger tells of both without a word of what was written."""
    alice.does("identity", "set", "--delay", "1440", "--pad", "--throttle", "10000")
    try:
        held = alice.sends([bob], "Held back", "--json").value
        given_up = alice.sends([bob], "Better not", "--json").value
    finally:
        alice.does("identity", "set", "--delay", "0", "--no-pad", "--throttle", "0")
    assert held["recipients"][0]["state"] == "stamped"
    alice.does("fetch")
    alice.does("outbox", "cancel", str(given_up["number"]))
    assert alice.tries("outbox", "cancel", str(given_up["number"])).exit_code == 40
    alice.does("outbox", "--retry")
    bob.does("fetch")
    assert "Held back" in bob.subjects()
    assert "Better not" not in bob.subjects()
    ledger = place / "ledger.jsonl"
    alice.does("outbox", "--export", str(ledger))
    text = ledger.read_text()
    rows = {row["message"]: row for row in map(json.loads, text.splitlines())}
    assert rows[held["number"]]["state"] == "sent"
    assert rows[held["number"]]["bytes"] > 8 * 1024
    assert rows[given_up["number"]]["state"] == "cancelled"
    assert not any(word in text for word in ("Held back", bob.address, "Bob"))
    assert alice.tries("outbox", "--export", str(ledger)).exit_code == 28


def test_ctrl_c_leaves_a_mail_in_the_outbox_and_says_so(
    alice: User, bob: User, place: Path
) -> None:
    """With the command that gives it up; until then the next fetch would send it."""
    noise = place / "interrupted.bin"
    noise.write_bytes(secrets.token_bytes(64 * 1024))
    words = letter_to([bob], "Interrupted")
    before = len(alice.does("outbox", "--json").value)
    # A suite that runs in the background was started with this signal ignored; a user is not.
    awake = ("env", "--default-signal=INT")
    sending = subprocess.Popen(
        [*awake, *alice.command(*words, "--attach", str(noise), "--throttle", "8")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with closing(sqlite3.connect(alice.home / "mail.sqlite")) as database:
        query = "SELECT count(*) FROM outgoing"
        while database.execute(query).fetchone()[0] == before and sending.poll() is None:
            time.sleep(0.01)
    sending.send_signal(signal.SIGINT)
    _, complaint = sending.communicate(timeout=SECONDS)
    assert sending.returncode == 130, complaint
    row = alice.does("outbox", "--json").value[-1]
    assert row["subject"] == "Interrupted"
    assert f"`sealmail outbox cancel {row['number']}` gives it up" in complaint
    alice.does("outbox", "cancel", str(row["number"]))


def test_a_failed_try_is_repeated_by_schedule_and_at_once_when_asked(
    alice: User, bob: User, servers: tuple[Server, Server]
) -> None:
    """``fetch`` leaves it alone until its time; ``outbox --retry`` looks the key up and sends."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    servers[1].stop()
    try:
        failed = alice.sends([bob], "By schedule", "--json")
    finally:
        servers[1].start()
    assert failed.exit_code == 4
    (waiting,) = json.loads(failed.output)["recipients"]
    assert waiting["tries"] == 1
    assert waiting["next_try"] > json.loads(failed.output)["composed"]
    alice.does("fetch")
    (row,) = (r for r in alice.does("outbox", "--json").value if r["subject"] == "By schedule")
    assert row["recipients"][0]["state"] == "stamped"
    alice.does("outbox", "--retry")
    (row,) = (r for r in alice.does("outbox", "--json").value if r["subject"] == "By schedule")
    assert row["recipients"][0]["state"] == "sent"


def test_watching_brings_mail_leaves_the_home_free_and_ends_on_a_signal(
    alice: User, bob: User
) -> None:
    """Bob can write while he watches."""
    command = bob.command("fetch", "--watch", "0.02")
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    try:
        assert alice.sends([bob], "Seen while watching").exit_code == 0
        seen = next(line for line in watch.stdout if "Seen while watching" in line)
        assert "Alice" in seen
        assert bob.sends([alice], "Beside the watch").exit_code == 0
    finally:
        watch.send_signal(signal.SIGTERM)
        _, complaint = watch.communicate(timeout=SECONDS)
    assert watch.returncode == 0
    assert complaint.endswith("stopped\n")


class Busy(Verifier):
    """A verifier that comes to no answer, as one does whose gpg cannot be started."""

    def verify_clear_signed(
        self, text: bytes, certificate: bytes, expected: KeyId
    ) -> Verification:
        """Give up."""
        raise Undecided("no process for the verifier")


def test_a_key_that_cannot_be_checked_now_holds_up_no_mail(alice: User, bob: User) -> None:
    """A retry looks the key up again; the one that is held serves."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    draft = Draft("d" * 40, "Undecided", "text", (Addressee(bob.address, bob.key_id, "Bob"),))
    with open_desk(Home(alice.home), alone=True) as desk:
        desk.verifier = Busy()
        number = desk.outbox.add(draft, desk.clock(), desk.clock() + timedelta(hours=1))
        asyncio.run(Sender(desk).advance(number))
        desk.outbox.record_trouble(number, bob.key_id, "down")
        (sent,) = asyncio.run(Sender(desk).advance(number)).recipients
    assert sent.stage is Stage.SENT
    bob.does("fetch")


def test_a_watch_keeps_its_wishes_through_a_round_that_fails(
    alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full for a while neither ends it nor makes it forget what was asked for."""
    assert alice.sends([bob], "Under the price").exit_code == 0
    bob.setting("price", "bd,60,2")
    former = signal.getsignal(signal.SIGTERM)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rests = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if len(rests) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", rest)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        watched = bob.tries("fetch", "--watch", "0.02", "--all")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGTERM, former)
        bob.setting("price", "bd,20,2")
    assert (watched.exit_code, len(rests)) == (0, 2), watched
    assert "note: " in watched.complaint
    assert "Under the price" in watched.output


async def announce_blocks(reader: User, count: int, secret: BypassSecret | None = None) -> None:
    """Announce a mail of blocks that nobody stored, with a token if a secret is known."""
    keys = tuple(data_key(secrets.token_bytes(8)) for _ in range(count))
    date, mailbox = utc_now(), mailbox_key("0", reader.key_id)
    stamped = message_challenge(reader.key_id, keys[0], date, keys)
    stamp = mint(stamped, Difficulty(20, 2))
    token = None if secret is None else bypass_token(secret, stamped)
    announcement = make_announcement(date, stamp, reader.key_id, "0", keys, keys[0], token)
    local = DialSettings(allow_private_targets=True)
    async with await dial(reader.server.address, local, MemoryPins(), strict_pin=False) as remote:
        assert await remote.store(mailbox, announcement.lines) is Word.DONE


def test_large_mail_waits_until_its_number_is_named(bob: User) -> None:
    """An announcement of thirteen blocks is listed; nothing of it is asked for unasked."""
    asyncio.run(announce_blocks(bob, 13))
    (listed,) = (
        row for row in bob.does("fetch", "--json").value["waiting"] if row["blocks"] == 13
    )
    assert listed["state"] == "large"
    assert f"`sealmail fetch {listed['number']}` takes it" in bob.does("fetch").output
    asked = bob.does("fetch", str(listed["number"])).output
    assert "13 blocks: block 1 of 13 is not on the server yet" in asked
    assert bob.tries("fetch", "9999").exit_code == 21


def test_large_mail_of_somebody_who_was_written_to_does_not_wait(alice: User, bob: User) -> None:
    """A token tells who he is before anything is fetched; he who was revoked is a stranger."""
    with open_desk(Home(bob.home), alone=True) as desk:
        given = desk.bypass.give(alice.key_id, desk.clock(), secrets.token_bytes)
    asyncio.run(announce_blocks(bob, 15, given.secret))
    (listed,) = (
        row for row in bob.does("fetch", "--json").value["waiting"] if row["blocks"] == 15
    )
    assert listed["state"] == "announced"
    assert "block 1 of 15 is not on the server yet" in listed["reason"]
    bob.does("bypass", "revoke", alice.key_id.hex)
    (listed,) = (
        row for row in bob.does("fetch", "--json").value["waiting"] if row["blocks"] == 15
    )
    assert listed["state"] == "large"
    # Until she looks him up again, all that she writes bears the token that is void.
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))


def test_mail_is_found_by_words_in_subject_people_and_text(alice: User, bob: User) -> None:
    """Case does not matter, and every word must be there."""
    words = letter_to([bob], "Zebra crossing")
    assert alice.tries(*words[:-1], "about the okapi").exit_code == 0
    bob.does("fetch")
    found = [row["subject"] for row in bob.does("search", "OKAPI alice", "--json").value]
    assert found == ["Zebra crossing"]
    assert bob.does("search", "zebra unicorn", "--json").value == []


def test_the_doctor_finds_a_sound_home_and_says_what_is_not(alice: User, place: Path) -> None:
    """The exit code tells scripts; each finding names its part."""
    sound = alice.does("doctor", "--json").value
    assert {row["part"] for row in sound} >= {"gnupg", "disk", "clock", "server", "pin", "key"}
    assert all(row["well"] for row in sound)
    ill = alice.moved(place / "ill")
    (ill.home / "auth_key").write_text("0" * 40)
    (ill.home / "auth_key").chmod(0o644)
    found = ill.tries("doctor")
    assert found.exit_code == 41
    assert "! permissions" in found.output
    assert "! login" in found.output


def test_the_installed_program_looks_at_everything_and_completes_words(
    alice: User, place: Path
) -> None:
    """Each of these runs as a program of its own, and none needs another's lock."""
    commands = (
        ("search", "nothing like this"),
        ("doctor",),
        ("outbox", "--export", str(place / "by-program.jsonl")),
        ("list",),
        ("identity", "list"),
        ("key", "list"),
        ("server", "pins"),
    )
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(lambda words: alice.runs(*words), commands):
            assert done.exit_code == 0, done
    completion = alice.runs(environment={"_SEALMAIL_COMPLETE": "bash_source"})
    assert "_sealmail_completion" in completion.output


def test_lists_are_tables_at_a_terminal_and_plain_lines_in_a_pipe(alice: User, bob: User) -> None:
    """Pins are in one piece in both."""
    assert alice.sends([bob], "For a table").exit_code == 0
    for words, heading, value in (
        (("list", "--folder", "sent"), "Subject", "For a table"),
        (("outbox",), "Recipient", f"To: {bob.address}"),
        (("key", "list"), "Standing", str(bob.key_id)),
        (("server", "pins"), "Since", alice.does("server", "pins", "--json").value[0]["pin"]),
    ):
        at_terminal, in_pipe = shown_at_terminal(alice, *words), alice.runs(*words).output
        assert heading in at_terminal
        assert heading not in in_pipe
        assert value in at_terminal
        assert value in in_pipe


def test_who_reads_only_the_head_of_a_list_sees_no_complaint(alice: User) -> None:
    """The pipe is closed before anything is printed into it."""
    reading, writing = os.pipe()
    os.close(reading)
    command = alice.command("key", "list")
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def shown_at_terminal(user: User, *words: str) -> str:
    """Return what the installed program writes to a terminal of 80 columns."""
    screen, terminal = pty.openpty()
    plain = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    with subprocess.Popen(user.command(*words), stdout=terminal, env=plain) as process:
        os.close(terminal)
        shown = bytearray()
        # At its end a terminal is no file any more.
        with suppress(OSError):
            while piece := os.read(screen, 4096):
                shown += piece
    os.close(screen)
    assert process.returncode == 0
    return shown.decode()
