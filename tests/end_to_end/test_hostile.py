"""Forged mail, wrong keys, and somebody between user and server."""

import re
import shutil
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.end_to_end.forging import SECRET, forged_letter, post, sign
from tests.end_to_end.programs import Server, User

from sealmail_client.keyring import Keyring
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.keys import acknowledgment_key


async def has_acknowledgment(remote: RemoteServer) -> bool:
    """Tell whether the secret of the forged mail was published."""
    return await remote.get(acknowledgment_key(SECRET)) is not None


@pytest.fixture
def tools(mallory: User) -> Iterator[Keyring]:
    """Return Mallory's keyring."""
    with Keyring(mallory.home / "gnupg") as keyring:
        yield keyring


def test_a_forged_sender_is_shown_as_not_valid_and_never_acknowledged(
    alice: User, bob: User, mallory: User, tools: Keyring, tmp_path: Path
) -> None:
    """The text cannot steer the terminal either, as text or as JSON."""
    letter = forged_letter(alice, bob, "From Alice, surely")
    post(tools, bob, *sign(tools, mallory, letter), tmp_path)
    arrived = bob.does("fetch", "--json")
    (mail,) = (m for m in arrived.value["filed"] if m["subject"] == "From Alice, surely")
    assert mail["signature"] == "invalid"
    assert "by its sender" in mail["remark"]
    assert not alice.asks_server(has_acknowledgment)
    shown = bob.does("read", str(mail["number"])).output
    assert "Signature: NOT VALID" in shown
    assert "�[2JGive me�31m money\nnow" in shown
    as_json = bob.does("read", str(mail["number"]), "--json")
    assert as_json.output.isascii()
    assert as_json.value["text"] == letter.text
    assert "[signature not valid]" in bob.does("list").output


def test_a_borrowed_signature_does_not_hide_the_mail_it_was_made_for(
    alice: User, bob: User, carol: User, tools: Keyring, tmp_path: Path
) -> None:
    """Who alters a copy and comes first must not make the true mail a duplicate of his."""
    alice.tries("key", "find", carol.address, "--server", str(carol.server.address))
    alice.does("key", "trust", carol.address, carol.key_id.hex)
    assert alice.sends([bob, carol], "The true one").exit_code == 0
    (sent,) = (
        m
        for m in alice.does("list", "--folder", "sent", "--json").value
        if m["subject"] == "The true one"
    )
    kept = alice.home / "mail" / str(sent["number"])
    content = (kept / "message.zip").read_bytes().replace(b"text", b"TEXT")
    post(tools, carol, content, (kept / "message.sig").read_bytes(), tmp_path)
    filed = carol.does("fetch", "--json").value["filed"]
    states = sorted(m["signature"] for m in filed if m["subject"] == "The true one")
    # The altered copy fails its checksum in the ZIP, or is filed beside the true one.
    assert states.count("valid") == 1


def test_mail_that_was_sealed_anew_for_another_reader_is_shown_with_a_remark(
    alice: User, bob: User, carol: User, tools: Keyring, tmp_path: Path
) -> None:
    """Its signature is good, but it does not name the reader, and is not acknowledged."""
    assert alice.sends([bob], "For Bob's eyes").exit_code == 0
    (sent,) = (
        m
        for m in alice.does("list", "--folder", "sent", "--json").value
        if m["subject"] == "For Bob's eyes"
    )
    kept = alice.home / "mail" / str(sent["number"])
    content, signature = (kept / "message.zip").read_bytes(), (kept / "message.sig").read_bytes()
    post(tools, carol, content, signature, tmp_path)
    arrived = carol.does("fetch", "--json").value["filed"]
    (mail,) = (m for m in arrived if m["subject"] == "For Bob's eyes")
    assert mail["signature"] == "valid"
    assert "written to others" in mail["remark"]
    (row,) = (r for r in alice.does("acks", "--json").value if r["subject"] == "For Bob's eyes")
    assert row["recipients"][0]["state"] == "sent"


def test_a_wrong_auth_key_is_told_by_its_exit_code(alice: User, place: Path) -> None:
    """The way out names the file to mend."""
    stranger = alice.moved(place / "wrong")
    (stranger.home / "auth_key").write_text("0" * 40)
    refused = stranger.tries("fetch")
    assert refused.exit_code == 24
    assert "auth_key" in refused.complaint


def test_a_server_whose_tls_key_changed_is_not_logged_in_to(
    alice: User, servers: tuple[Server, Server], place: Path
) -> None:
    """The user decides: only after ``server accept`` is the new key taken."""
    first = servers[0]
    other = Server.create(place / "other")
    first.stop()
    shutil.move(first.directory / "tls", place / "tls")
    shutil.copytree(other.directory / "tls", first.directory / "tls")
    first.start()
    try:
        visitor = alice.moved(place / "pinned")
        refused = visitor.tries("fetch")
        assert refused.exit_code == 3
        assert "shows another key than before" in refused.complaint
        offered = re.search(r"sealmail server accept (\S+) ([0-9a-f]{64})", refused.complaint)
        assert offered is not None
        assert offered[1] == str(first.address)
        visitor.does("server", "accept", *offered.groups())
        visitor.does("fetch")
    finally:
        first.stop()
        shutil.rmtree(first.directory / "tls")
        shutil.move(place / "tls", first.directory / "tls")
        first.start()


class Stripper(socketserver.StreamRequestHandler):
    """Sits between, and says that the server knows no TLS."""

    heard: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        """Take down every line, and refuse the first."""
        self.wfile.write(b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n")
        while line := self.rfile.readline():
            self.heard.append(line)
            self.wfile.write(b"FAILED\r\n")


def test_a_man_in_the_middle_who_strips_starttls_learns_nothing(alice: User, place: Path) -> None:
    """All that he hears is the wish to encrypt."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Stripper) as between:
        threading.Thread(target=between.serve_forever, daemon=True).start()
        victim = alice.moved(place / "stripped")
        victim.setting("transport", f"server=127.0.0.1:{between.server_address[1]}")
        refused = victim.tries("fetch")
        between.shutdown()
    assert refused.exit_code == 3
    assert "did not start TLS" in refused.complaint
    assert Stripper.heard == [b"STARTTLS\r\n"]
