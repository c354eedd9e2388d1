"""Mail between users of two servers, by the installed programs."""

import asyncio
import os
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random

from tests.end_to_end.programs import Server, User, letter_to

from sealmail_client.channels import BY_SERVER, Route
from sealmail_client.desk import open_desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.profile import Home
from sealmail_client.sending import Sender
from sealmail_protocol.addresses import ServerAddress
from sealmail_server.onion_key import OnionKey

# Nobody is asked there: only the order counts.
ELSEWHERE = ("a.example:8081", "b.example:8081", "c.example:8081")


def recorded(user: User, number: int) -> list[bytes]:
    """Return every byte of a message that has been recorded for sending."""
    with sqlite3.connect(user.home / "mail.sqlite") as database:
        data = database.execute(
            "SELECT header FROM outgoing_data WHERE message = ? ORDER BY position", (number,)
        ).fetchall()
        announced = database.execute(
            "SELECT announcement FROM outgoing_recipient WHERE message = ?", (number,)
        ).fetchall()
    database.close()
    sealed = (user.home / "outgoing" / str(number) / "sealed.pgp").read_bytes()
    return [*(row[0] for row in (*data, *announced)), sha256(sealed).digest()]


def test_a_mail_is_sent_fetched_read_and_acknowledged(alice: User, bob: User) -> None:
    """All that scripts can see of it is JSON, and says the same as the mail."""
    found = alice.does(
        "key", "find", bob.address, "--server", str(bob.server.address), "--json"
    ).value
    assert [one["key_id"] for one in found] == [bob.key_id.hex]
    sent = alice.runs(*letter_to([bob], "Grüße"), "--json").value
    assert [one["state"] for one in sent["recipients"]] == ["sent"]
    arrived = bob.runs("fetch", "--json").value
    assert [mail["subject"] for mail in arrived["filed"]] == ["Grüße"]
    number = arrived["filed"][0]["number"]
    mail = bob.runs("read", str(number), "--json").value
    assert (mail["text"], mail["signature"], mail["remark"]) == ("text", "valid", "")
    assert mail["from"] == "Alice <alice@a.example>"
    assert mail["sender_key"] == alice.key_id.hex
    row = alice.outcome(sent["number"], "acknowledged")
    assert row["recipients"][0]["acknowledged"] is not None
    alice.does("outbox", "--retry")
    assert not (alice.home / "outgoing" / str(sent["number"])).exists()
    assert not any((bob.home / "incoming").iterdir())


def test_attachments_of_many_blocks_reach_two_recipients_on_two_servers(
    alice: User, bob: User, carol: User, tmp_path: Path
) -> None:
    """What is saved is what was attached, byte for byte; no file is overwritten."""
    large, small = tmp_path / "large.bin", tmp_path / "small.txt"
    large.write_bytes(os.urandom(9 * 1024 * 1024))
    small.write_text("small")
    # Carol's address is claimed twice, which is another test.
    alice.tries("key", "find", carol.address, "--server", str(carol.server.address))
    alice.does("key", "trust", carol.address, carol.key_id.hex)
    files = ("--attach", str(large), "--attach", str(small))
    sent = alice.sends([bob, carol], "Files", *files)
    assert sent.exit_code == 0, sent
    for reader in (bob, carol):
        (number,) = (
            mail["number"]
            for mail in reader.does("fetch", "--json").value["filed"]
            if mail["subject"] == "Files"
        )
        target = tmp_path / reader.name
        target.mkdir()
        (target / "small.txt").write_text("in the way")
        reader.does("save", str(number), str(target))
        assert (target / "large.bin").read_bytes() == large.read_bytes()
        assert (target / "small.txt").read_text() == "in the way"
        assert (target / "small (2).txt").read_text() == "small"
    assert {len(entry.data_blocks) for entry in bob.mailbox_entries()} >= {2}


def test_mail_for_a_server_that_is_down_waits_and_is_sent_as_it_was_recorded(
    alice: User, bob: User, servers: tuple[Server, Server]
) -> None:
    """The first try ends with exit code 4 and a reason; the second sends the same bytes."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    servers[1].stop()
    try:
        failed = alice.runs(*letter_to([bob], "Later"), "--json")
    finally:
        servers[1].start()
    assert failed.exit_code == 4
    assert "outbox --retry" in failed.complaint
    (waiting,) = failed.value["recipients"]
    assert waiting["state"] == "stamped"
    assert "cannot be reached" in waiting["reason"]
    before = recorded(alice, failed.value["number"])
    alice.does("outbox", "--retry")
    assert recorded(alice, failed.value["number"]) == before
    lines = ["\r\n".join((*entry.lines, "")).encode() for entry in bob.mailbox_entries()]
    assert lines.count(before[1]) == 1
    bob.does("fetch")
    assert bob.subjects().count("Later") == 1


def test_two_keys_for_one_address_stop_a_mail_until_the_user_decides(
    bob: User, carol: User, mallory: User
) -> None:
    """Then it goes to the trusted key, and the other one's mail is shown with a remark."""
    refused = bob.sends([carol], "To Carol alone")
    assert refused.exit_code == 22
    assert carol.key_id.hex in refused.complaint
    assert mallory.key_id.hex in refused.complaint
    assert bob.sends([carol], "To Carol alone").exit_code == 22
    bob.does("key", "trust", carol.address, carol.key_id.hex)
    assert bob.sends([carol], "To Carol alone").exit_code == 0
    assert mallory.mailbox_entries() == []
    assert mallory.sends([bob], "I am Carol").exit_code == 0
    arrived = bob.does("fetch", "--json").value["filed"]
    (mail,) = (mail for mail in arrived if mail["subject"] == "I am Carol")
    assert mail["signature"] == "valid"
    assert "another key" in mail["remark"]
    assert "doubtful" in bob.does("list").output
    (row,) = mallory.does("acks", "--json").value
    assert row["recipients"][0]["state"] == "sent"


def test_mail_below_the_price_waits_until_all_mail_is_asked_for(alice: User, bob: User) -> None:
    """A price that was raised holds for mail that came before, unless the reader wants it."""
    assert alice.sends([bob], "Cheap").exit_code == 0
    bob.setting("price", "bd,60,2")
    try:
        waiting = bob.does("fetch", "--json").value
        assert [row["state"] for row in waiting["waiting"]] == ["underpaid"]
        assert "Cheap" not in bob.subjects()
        taken = bob.does("fetch", "--all", "--json").value
    finally:
        bob.setting("price", "bd,20,2")
    assert [mail["subject"] for mail in taken["filed"]] == ["Cheap"]


def test_chance_chooses_the_mailbox_and_the_server(alice: User, bob: User) -> None:
    """Every mailbox and server serves, but one that holds data of the mail is asked first."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    route = Route(BY_SERVER, (*map(ServerAddress.parse, ELSEWHERE), bob.server.address))
    mailboxes, first, again = set(), set(), set()
    with open_desk(Home(alice.home), alone=True) as desk:
        to = Addressee(bob.address, bob.key_id, bob.name)
        for seed in range(6):
            sender = Sender(desk, dice=Random(seed))  # noqa: S311 - chance that can be repeated
            draft = Draft(f"{seed:040x}", "By chance", "text", (to,))
            number = desk.outbox.add(draft, desk.clock())
            first.add(sender.order(desk.outbox.one(number), route).servers[0])
            message = asyncio.run(sender.advance(number))
            announced = message.recipients[0].announcement
            assert announced is not None
            mailboxes.add(announced.mailbox)
            again.add(sender.order(message, route).servers[0])
            assert set(sender.order(message, route).servers) == set(route.servers)
    assert 1 < len(mailboxes) <= len(Home(bob.home).load().mailboxes)
    assert len(first) > 1
    assert again == {bob.server.address}


def test_a_mail_that_no_way_leads_for_fails_at_once(alice: User, bob: User, carol: User) -> None:
    """With the remedy, instead of being tried for days; others have it all the same."""
    onion = f"{OnionKey(bytes(32)).host}:8081"
    for reader in (bob, carol):
        alice.does("key", "find", reader.address, "--server", str(reader.server.address))
    with closing(sqlite3.connect(alice.home / "mail.sqlite")) as database, database:
        # As if Bob's server lived in Tor alone.
        ((held,),) = database.execute(
            "SELECT block FROM announcement WHERE key_id = ?", (bob.key_id.hex,)
        )
        hidden = held.replace(str(bob.server.address).encode(), onion.encode())
        assert hidden != held
        query = "UPDATE announcement SET block = ? WHERE key_id = ?"
        database.execute(query, (hidden, bob.key_id.hex))
    done = alice.tries(*letter_to([bob, carol], "Into the dark"), "--json")
    assert done.exit_code == 4
    states = {row["address"]: row for row in done.value["recipients"]}
    assert states[carol.address]["state"] == "sent"
    assert states[bob.address]["state"] == "failed"
    for way_out in ("no proxy to Tor", "--tor", "--i2p", "--send proxy"):
        assert way_out in states[bob.address]["reason"]
        assert way_out in done.complaint
    alice.does("outbox", "--retry")
    alice.tries("key", "forget", bob.address)
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
