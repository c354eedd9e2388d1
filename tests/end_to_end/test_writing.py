"""Copies, answers, forwarded mail and bypass tokens, by the installed programs."""

import asyncio
import sqlite3
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.programs import Server, User

from sealmail_client.answers import read_entries
from sealmail_client.desk import open_desk, utc_now
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.outbox import Stage
from sealmail_client.profile import Home
from sealmail_client.sending import Sender
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, level
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import KeyAnnouncement, MessageAnnouncement
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import KeyId, announcement_key

# So dear that no stamp of the floor is worth it by luck.
DEAR = "bd,32,2"
# What a token asks for in a mailbox with little room left for mail by tokens, likewise.
CLIMBED = 22
# More mail than the token shares of two small mailboxes take at less.
MANY = 8


@pytest.fixture(scope="module")
def friends(place: Path, servers: tuple[Server, Server]) -> tuple[User, User, User]:
    """Let three people settle who have nothing to do with the other tests."""
    first, second = servers
    settling = (
        ("Uta", "uta@a.example", first),
        ("Veit", "veit@b.example", second, DEAR),
        ("Wanda", "wanda@a.example", first),
    )
    with ThreadPoolExecutor(2) as pool:
        uta, veit, wanda = pool.map(lambda one: User.settle(place, *one), settling)
    for user in (uta, veit, wanda):
        for other in (one for one in (uta, veit, wanda) if one is not user):
            server = str(other.server.address)
            user.does("key", "find", other.address, "--server", server)
    return uta, veit, wanda


def sends(user: User, subject: str, *options: str) -> Any:
    """Write a mail that must be sent, and return what the program says of it."""
    words = ("--subject", subject, "--message", "text", "--json")
    return user.does("send", *options, *words).value


def fetched(user: User, subject: str) -> Any:
    """Fetch mail, and return the one with this subject as ``read`` shows it."""
    filed = user.does("fetch", "--json").value["filed"]
    (number,) = (mail["number"] for mail in filed if mail["subject"] == subject)
    return user.does("read", str(number), "--json").value


def zip_of(user: User, mail: Any) -> bytes:
    """Return the opened ZIP of a filed mail."""
    return (user.home / "mail" / str(mail["number"]) / "message.zip").read_bytes()


def announcement(user: User, number: int) -> MessageAnnouncement:
    """Return what was announced for the one recipient of an outgoing message."""
    with closing(sqlite3.connect(user.home / "mail.sqlite")) as database:
        query = "SELECT announcement FROM outgoing_recipient WHERE message = ?"
        (stored,) = database.execute(query, (number,)).fetchone()
    block = parse_text_block(split_lines(stored))
    assert isinstance(block, MessageAnnouncement)
    return block


def bits(block: MessageAnnouncement) -> int:
    """Return what a stamp is worth."""
    return level(block.challenge, block.stamp)


def test_nobody_but_the_sender_learns_of_a_bcc_recipient(
    friends: tuple[User, User, User],
) -> None:
    """The ZIP of the others names his key nowhere; his own copy does, and shares no block."""
    uta, veit, wanda = friends
    sent = sends(uta, "Quietly", "--to", veit.address, "--bcc", wanda.address)
    assert [(one["place"], one["state"]) for one in sent["recipients"]] == [
        ("To", "sent"),
        ("Bcc", "sent"),
    ]
    of_veit, of_wanda = fetched(veit, "Quietly"), fetched(wanda, "Quietly")
    assert wanda.key_id.raw.hex().encode() not in zip_of(veit, of_veit).lower()
    assert b"wanda@" not in zip_of(veit, of_veit).lower()
    assert (of_veit["to"], of_veit["bcc"]) == (["Veit <veit@b.example>"], [])
    assert of_wanda["to"] == ["Veit <veit@b.example>"]
    assert of_wanda["bcc"] == ["Wanda <wanda@a.example>"]
    assert (of_wanda["signature"], of_wanda["remark"]) == ("valid", "")
    (ack,) = (name for name in _names(wanda, of_wanda) if name.startswith("ACK_"))
    assert ack == f"ACK_{wanda.key_id.hex}.PGP"
    blocks = [set(one.data_blocks) for user in (veit, wanda) for one in user.mailbox_entries()]
    assert not set.intersection(*blocks)
    (kept,) = uta.does("list", "--folder", "sent", "--json").value
    assert (kept["to"], kept["bcc"]) == (["Veit <veit@b.example>"], ["Wanda <wanda@a.example>"])
    (row,) = uta.does("outbox", "--json").value
    assert len(uta.outcome(row["number"], "acknowledged")["recipients"]) == 2


def test_a_reply_to_all_goes_to_keys_and_never_to_oneself(
    friends: tuple[User, User, User], tmp_path: Path
) -> None:
    """It names the mail that it answers, and brings HTML beside its text."""
    uta, veit, wanda = friends
    sends(uta, "Meeting", "--to", veit.address, "--cc", wanda.key_id.hex)
    question = fetched(veit, "Meeting")
    assert (question["to"], question["cc"]) == (
        [f"Veit <{veit.address}>"],
        [f"Wanda <{wanda.address}>"],
    )
    page = tmp_path / "page.html"
    page.write_text("<script>bad()</script><p>yes")
    options = ("--all", "--quote", "--message", "yes", "--html", str(page), "--json")
    sent = veit.does("reply", str(question["number"]), *options).value
    assert [(one["place"], one["key_id"]) for one in sent["recipients"]] == [
        ("To", uta.key_id.hex),
        ("Cc", wanda.key_id.hex),
    ]
    for reader in (uta, wanda):
        answer = fetched(reader, "Re: Meeting")
        assert answer["text"].startswith("yes\n\nOn ")
        assert answer["text"].endswith("wrote:\n> text\n")
        with zipfile.ZipFile(_path(veit, question)) as asked:
            unique_id = answer["reply_thread_id"]
            assert f"MessageUniqueId: {unique_id}".encode() in asked.read("HEADER.TXT")
    target = tmp_path / "read.html"
    wanda.does("read", str(answer["number"]), "--html", str(target))
    assert "default-src 'none'" in target.read_text().partition("<script>")[0]
    assert wanda.tries("read", str(answer["number"]), "--html", str(target)).exit_code == 28
    assert wanda.does("read", str(answer["number"]), "--html", "-").output == target.read_text()


def test_a_third_reader_verifies_the_signature_of_a_forwarded_mail(
    friends: tuple[User, User, User], tmp_path: Path
) -> None:
    """Without the signature text and attachments go along, and nothing is proven."""
    uta, veit, wanda = friends
    file = tmp_path / "plan.txt"
    file.write_text("the plan")
    sends(uta, "Plan", "--to", veit.address, "--attach", str(file))
    original = fetched(veit, "Plan")
    whole = ("--to", wanda.address, "--with-signature", "--message", "look")
    veit.does("forward", str(original["number"]), *whole)
    got = fetched(wanda, "Fwd: Plan")
    assert got["forwarded"]["sender_key"] == uta.key_id.hex
    assert (got["forwarded"]["signature"], got["forwarded"]["remark"]) == ("valid", "")
    shown = wanda.does("read", str(got["number"])).output
    assert f"of Uta <uta@a.example> {uta.key_id} (pinned), signature valid" in shown
    inner = wanda.does("read", str(got["forwarded"]["number"]), "--json").value
    assert (inner["folder"], inner["text"]) == ("forwarded", "text")
    assert [one["name"] for one in inner["attachments"]] == ["plan.txt"]
    veit.does("forward", str(original["number"]), "--key", uta.key_id.hex, "--message", "see")
    back = fetched(uta, "Fwd: Plan")
    assert back["forwarded"] is None
    assert "From: Uta" in back["text"]
    assert back["text"].startswith("see\n")
    uta.does("save", str(back["number"]), str(tmp_path))
    assert (tmp_path / "plan (2).txt").read_text() == "the plan"


def given(user: User, other: User) -> list[bool]:
    """Return which secrets that ``user`` gave the other are usable, the oldest first."""
    return [
        row["usable"]
        for row in user.does("bypass", "list", "--json").value
        if row["direction"] == "given" and row["key_id"] == other.key_id.hex
    ]


async def published(remote: RemoteServer, key_id: KeyId) -> KeyAnnouncement:
    """Return the announcement of a key on a server."""
    key = announcement_key(key_id)
    (entry,) = read_entries(await remote.get(key) or (), key, utc_now(), [])
    assert isinstance(entry.block, KeyAnnouncement)
    return entry.block


def test_who_was_written_to_pays_with_a_token_until_it_is_revoked(
    friends: tuple[User, User, User],
) -> None:
    """Then his mail is listed, and taken on request; a blocked sender's never."""
    uta, veit, _ = friends
    sends(veit, "Hello", "--to", uta.address)
    fetched(uta, "Hello")
    listed = uta.does("bypass", "list", "--json").value
    received = [one for one in listed if one["direction"] == "received"]
    assert veit.key_id.hex in {one["key_id"] for one in received}
    paid = announcement(uta, sends(uta, "By token", "--to", veit.address)["number"])
    assert paid.token is not None
    # Those of the floor, or a few more by luck.
    assert 8 <= bits(paid) < Difficulty.parse(DEAR).bits
    assert fetched(veit, "By token")["signature"] == "valid"
    before = veit.asks_server(lambda remote: published(remote, veit.key_id))
    assert "void" not in veit.does("bypass", "list").output
    assert "must work" in veit.does("bypass", "revoke", uta.address).output
    sends(uta, "Revoked", "--to", veit.address)
    waiting = veit.does("fetch", "--json").value["waiting"]
    assert [(one["state"], one["token"]) for one in waiting] == [("underpaid", True)]
    assert "a token that is not honoured" in veit.does("fetch").output
    taken = veit.does("fetch", "--all", "--json").value["filed"]
    assert [mail["subject"] for mail in taken] == ["Revoked"]
    after = veit.asks_server(lambda remote: published(remote, veit.key_id))
    assert before.tokens_accepted_since is not None
    assert after.tokens_accepted_since is not None
    assert after.tokens_accepted_since > before.tokens_accepted_since
    uta.does("key", "find", veit.address, "--server", str(veit.server.address))
    by_work = announcement(uta, sends(uta, "By work", "--to", veit.address)["number"])
    assert by_work.token is None
    assert bits(by_work) >= Difficulty.parse(DEAR).bits
    fetched(veit, "By work")
    # With this he gives her another secret.
    sends(veit, "Again", "--to", uta.address)
    assert given(veit, uta) == [False, True]
    veit.does("block", uta.address)
    assert given(veit, uta) == [False, False]
    sends(uta, "Blocked", "--to", veit.address)
    assert veit.does("fetch", "--all", "--json").value["filed"] == []
    veit.does("unblock", uta.key_id.hex)
    filed = veit.does("fetch", "--all", "--json").value["filed"]
    assert [mail["subject"] for mail in filed] == ["Blocked"]


@pytest.fixture(scope="module")
def zoe(place: Path) -> Iterator[User]:
    """Return somebody whose price is dear, on a server where mailboxes are soon full."""
    server = Server.create(place / "narrow")
    with (server.directory / "config.toml").open("a") as config:
        config.write("mailbox_bytes = 8192\n")
    server.start()
    user = User.settle(place, "Zoe", "zoe@z.example", server, DEAR)
    user.does("identity", "set", "--mailboxes", "2")
    yield user
    server.stop()


@pytest.fixture(scope="module")
def wanda(friends: tuple[User, User, User], zoe: User) -> User:
    """Return somebody to whom Zoe has given a secret."""
    wanda = friends[2]
    wanda.does("key", "find", zoe.address, "--server", str(zoe.server.address))
    zoe.does("key", "find", wanda.address, "--server", str(wanda.server.address))
    sends(zoe, "Your secret", "--to", wanda.address)
    fetched(wanda, "Your secret")
    return wanda


def test_a_demand_that_climbs_is_paid_and_the_token_kept(wanda: User, zoe: User) -> None:
    """The more a mailbox holds by tokens, the more it asks; the token still counts with Zoe."""
    subjects = []
    for number in range(MANY):
        subjects.append(f"One more, {number}")
        paid = announcement(wanda, sends(wanda, subjects[-1], "--to", zoe.address)["number"])
        assert paid.token is not None
        if bits(paid) >= CLIMBED:
            break
    assert bits(paid) >= CLIMBED
    assert zoe.does("fetch", "--json").value["waiting"] == []
    assert set(subjects) <= set(zoe.subjects())


def test_mail_that_is_dated_anew_gets_a_token_for_its_new_date(wanda: User, zoe: User) -> None:
    """A token is bound to the date: the old one would not be honoured."""
    draft = Draft("c" * 40, "Late", "text", (Addressee(zoe.address, zoe.key_id, "Zoe"),))
    long_ago = utc_now() - timedelta(days=9, hours=12)
    zoe.server.stop()
    try:
        with open_desk(Home(wanda.home), alone=True, clock=lambda: long_ago) as desk:
            number = desk.outbox.add(draft, long_ago)
            waiting = asyncio.run(Sender(desk).advance(number))
    finally:
        zoe.server.start()
    assert waiting.at(Stage.STAMPED)
    before = announcement(wanda, number)
    wanda.does("outbox", "--retry")
    after = announcement(wanda, number)
    assert (before.date, after.date > long_ago + timedelta(days=9)) == (long_ago, True)
    assert before.token is not None
    assert after.token not in (None, before.token)
    assert bits(after) < Difficulty.parse(DEAR).bits
    assert fetched(zoe, "Late")["signature"] == "valid"


def test_a_demand_above_the_limit_waits_until_the_user_agrees(wanda: User, zoe: User) -> None:
    """What was allowed for the first quote holds for what the mailbox asks later."""
    for number in range(MANY):
        words = ("--subject", f"Cheap, {number}", "--message", "text", "--json")
        done = wanda.tries("send", "--to", zoe.address, "--max-price", "bd,12,2", *words)
        if done.exit_code == 4:
            break
    (waiting,) = done.value["recipients"]
    assert waiting["state"] == "stamped"
    assert f"sealmail outbox pay {done.value['number']} --max-price" in waiting["reason"]
    assert bits(announcement(wanda, done.value["number"])) < CLIMBED
    assert wanda.tries("outbox", "--retry").exit_code == 4
    agreed = ("outbox", "pay", str(done.value["number"]), "--max-price", "bd,40,2", "--json")
    (paid,) = wanda.does(*agreed).value["recipients"]
    assert paid["state"] == "sent"
    assert wanda.tries(*agreed).exit_code == 40
    zoe.does("fetch")
    assert f"Cheap, {number}" in zoe.subjects()


def test_the_price_that_is_told_is_that_of_a_token(friends: tuple[User, User, User]) -> None:
    """Who has a secret pays the floor, so a limit below the recipient's price is kept."""
    uta, veit, _ = friends
    sends(veit, "Write back", "--to", uta.address)
    fetched(uta, "Write back")
    sends(uta, "Cheap", "--to", veit.address, "--max-price", "bd,24,2")


def _path(user: User, mail: Any) -> Path:
    return user.home / "mail" / str(mail["number"]) / "message.zip"


def _names(user: User, mail: Any) -> list[str]:
    with zipfile.ZipFile(_path(user, mail)) as archive:
        return archive.namelist()
