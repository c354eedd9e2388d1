"""Keys of unknown senders, found without telling them; and mail of which something is missing."""

import asyncio
import io
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import quick_home
from tests.end_to_end.forging import (
    SECRET,
    announce,
    forged_letter,
    leave,
    leave_data,
    post,
    seal,
    sign,
)
from tests.end_to_end.programs import SECONDS, Server, User
from tests.net.name_server import free_port, name_server
from tests.net.socks_server import SocksServer

from sealmail_client.connecting import DnsUse
from sealmail_client.desk import Desk, open_desk, utc_now
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.fetching import Fetching, Here, Missing, TooLarge
from sealmail_client.keyring import Keyring
from sealmail_client.message_zip import zip_chunks
from sealmail_client.outbox import Stage
from sealmail_client.posting import Peer
from sealmail_client.profile import Home
from sealmail_client.progress import Nobody
from sealmail_client.receiving import Arrivals, Receiver
from sealmail_client.safe_files import make_private
from sealmail_client.sealing import open_seal
from sealmail_client.sender_keys import sources_for_sender
from sealmail_client.sending import Sender
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.keys import KeyId, acknowledgment_key, data_key

ONION = f"{'a' * 56}.onion"
# As long as any server keeps mail.
LIFETIME = timedelta(days=10)


@dataclass(frozen=True)
class Town:
    """Rita, who reads, and people of another server: each is found in one way only."""

    rita: User
    senders: dict[str, User]


@pytest.fixture(scope="module")
def town(place: Path) -> Iterator[Town]:
    """Run two servers that share a DHT; the second one is named by the domain of Sam."""
    directory = Path(tempfile.mkdtemp(prefix="smn-"))
    first, second = (Server.create(place / name) for name in ("keys-a", "keys-b"))
    zone = f'cmsvr TXT "server={second.address}"\n'
    with name_server(directory, {"s.test": zone}) as dns:
        for server in (first, second):
            with (server.directory / "config.toml").open("a") as config:
                config.write(f'dht = true\ndht_bootstrap = ["{first.address}"]\n')
                config.write(f'dns_server = "{dns}"\n')
            server.start()
        rita = User.settle(place, "Rita", "rita@r.test", first)
        senders = {
            "dht": User.settle(place, "Dot", "dot@d.test", second, ways=("--dht",)),
            "dns": User.settle(place, "Sam", "sam@s.test", second),
            "mail": User.settle(place, "Pia", "pia@p.test", second),
        }
        yield Town(rita, senders)
        for server in (first, second):
            server.stop()
    shutil.rmtree(directory)


def written(sender: User, reader: User, subject: str, place: Path, *, named: bool = True) -> bytes:
    """Return a sealed mail without its sender's key; ``named`` says where that is."""
    letter = forged_letter(sender, reader, subject)
    if not named:
        letter = replace(letter, header=replace(letter.header, sender_transport=None))
    with Keyring(sender.home / "gnupg") as keyring:
        return seal(keyring, reader, *sign(keyring, sender, letter), place)


def signature(filed: Any, subject: str) -> Any:
    """Return what is known of the signature of the one mail with this subject."""
    (mail,) = (one for one in filed if one["subject"] == subject)
    return mail["signature"]


def asks(user: User, *, dht: bool = False, dns: DnsUse = DnsUse.OFF) -> None:
    """Let a user seek keys in these ways; DNS does not answer him, whatever he asks of it."""
    home, nobody = Home(user.home), ServerAddress("127.0.0.1", free_port())
    settings = home.load()
    connecting = replace(settings.connecting, dns=dns, dns_server=nobody)
    home.save(replace(settings, dht=dht, connecting=connecting))


@pytest.mark.parametrize(
    ("way", "setting"), [("dht", {"dht": True}), ("dns", {"dns": DnsUse.DIRECT})]
)
def test_the_key_of_a_stranger_is_sought_through_the_home_server(
    town: Town, way: str, setting: dict[str, Any], tmp_path: Path
) -> None:
    """In the DHT and by DNS, as far as the user wants that; nothing is dialled from here."""
    rita, sender = town.rita, town.senders[way]
    asks(rita)
    leave(rita, written(sender, rita, f"by {way}", tmp_path, named=False))
    waiting = rita.does("fetch", "--json").value["waiting"]
    reason = f"the key of its sender {sender.key_id} cannot be found"
    assert reason in [one["reason"] for one in waiting]
    asks(rita, **setting)
    filed = rita.does("fetch", "--json").value["filed"]
    assert signature(filed, f"by {way}") == "valid"
    assert str(sender.server.address) not in rita.does("server", "pins").output


def test_the_home_server_asks_for_the_key_where_the_mail_says(town: Town, tmp_path: Path) -> None:
    """By GET PROXY, so that the sender's server does not see who reads."""
    rita, pia = town.rita, town.senders["mail"]
    asks(rita)
    leave(rita, written(pia, rita, "by the mail", tmp_path))
    filed = rita.does("fetch", "--json").value["filed"]
    assert signature(filed, "by the mail") == "valid"
    assert str(pia.server.address) not in rita.does("server", "pins").output


def test_who_has_no_home_server_does_not_dial_what_a_mail_names(town: Town, place: Path) -> None:
    """It would show him to its sender: the mail waits until he asks there himself."""
    sam = town.senders["dns"]
    ada = User.settle_in_dht(place, "Ada", "ada@a.test", town.rita.server)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        there = Transport((ServerAddress(*listener.getsockname()),))
        _write_without_key(sam, ada, there)
        deadline = time.monotonic() + SECONDS
        while not (waiting := ada.does("fetch", "--json").value["waiting"]):
            assert time.monotonic() < deadline
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    (one,) = waiting
    assert f"`sealmail key find {sam.key_id.hex} --server {there.servers[0]}`" in one["reason"]
    ada.does("key", "find", sam.key_id.hex, "--server", str(sam.server.address))
    assert signature(ada.does("fetch", "--json").value["filed"], "Look there") == "valid"


def test_who_has_no_home_server_asks_hidden_servers_only_by_a_proxy(
    town: Town, place: Path
) -> None:
    """The proxy hides him; of several addresses that a mail names the public one is left out."""
    sam = town.senders["dns"]
    ada = User.settle_in_dht(place, "Adele", "adele@a.test", town.rita.server)
    header = forged_letter(sam, ada, "From the dark").header
    assert header.sender_transport is not None
    both = Transport((*header.sender_transport.servers, ServerAddress(ONION, 8081)))
    socks = SocksServer({ONION: sam.server.address.port})

    async def ask(desk: Desk) -> tuple[list[str], list[KeyId]]:
        async with desk.servers.home() as door, socks.serving() as proxy:
            settings = desk.settings
            connecting = replace(settings.connecting, tor_proxy=proxy)
            desk.change(replace(settings, connecting=connecting))
            named = replace(header, sender_transport=both)
            sources = sources_for_sender(desk, door, named)
            answers = [await source.by_key_id(sam.key_id) for source in sources]
        return [one.name for one in sources], [key.key_id for one in answers for key in one.keys]

    with open_desk(Home(ada.home), alone=True) as desk:
        names, found = asyncio.run(ask(desk))
    assert names == [f"server={ONION}:8081"]
    assert found == [sam.key_id]
    assert [one.host for one in socks.asked] == [ONION]


def _write_without_key(sender: User, reader: User, named: Transport) -> None:
    """Send a mail through the DHT that lacks its sender's key, and names servers of his."""
    home = Home(sender.home)
    settings = home.load()
    home.save(replace(settings, dht=True))
    sender.does("key", "find", reader.address)
    home.save(replace(settings, transport=named, doors=(sender.server.address,)))
    with open_desk(home, alone=True) as desk:
        desk.database.write("DELETE FROM own_block")
        to = Addressee(reader.address, reader.key_id, reader.name)
        number = desk.outbox.add(Draft("d" * 40, "Look there", "text", (to,)), desk.clock())
        message = asyncio.run(Sender(desk).advance(number))
    home.save(settings)
    assert message.at(Stage.SENT)


def visits(reader: User, ahead: timedelta) -> Arrivals:
    """Fetch with a clock that is ahead."""

    async def visit(desk: Desk) -> Arrivals:
        async with desk.servers.home() as peer:
            return await Receiver(desk).visit(peer)

    with open_desk(Home(reader.home), alone=True, clock=lambda: utc_now() + ahead) as desk:
        return asyncio.run(visit(desk))


def test_mail_of_somebody_whose_key_never_comes_is_filed_at_last(
    town: Town, place: Path, tmp_path: Path
) -> None:
    """Marked as not checked, and not acknowledged, when no server would keep it any longer."""
    rita, home = town.rita, quick_home(place / "nemo")
    letter = forged_letter(town.senders["mail"], rita, "From nobody")
    with Keyring(home) as keyring:
        nemo = keyring.create("Nemo", "nemo@n.test", None)
        header = replace(
            letter.header,
            sender_user_id="Nemo <nemo@n.test>",
            sender=nemo,
            sender_transport=None,
        )
        content = b"".join(zip_chunks(replace(letter, header=header)))
        proof = keyring.sign_detached(io.BytesIO(content), nemo, None)
        post(keyring, rita, content, proof, tmp_path)
    assert rita.does("fetch", "--json").value["waiting"]
    visits(rita, LIFETIME)
    (mail,) = (one for one in rita.does("list", "--json").value if one["subject"] == "From nobody")
    assert mail["signature"] == "unknown key"
    assert "NOT CHECKED" in rita.does("read", str(mail["number"])).output
    assert not rita.asks_server(has_acknowledgment)


async def has_acknowledgment(remote: RemoteServer) -> bool:
    """Tell whether the secret of a mail that was made by hand is known."""
    return await remote.get(acknowledgment_key(SECRET)) is not None


def test_a_block_that_comes_later_completes_a_mail(town: Town, tmp_path: Path) -> None:
    """Until then the mail waits, and says for what."""
    rita, pia = town.rita, town.senders["mail"]
    sealed = written(pia, rita, "In two steps", tmp_path)
    announce(rita, sealed)
    waiting = rita.does("fetch", "--json").value["waiting"]
    assert "block 1 of 1 is not on the server yet" in [one["reason"] for one in waiting]
    leave_data(rita, sealed)
    assert signature(rita.does("fetch", "--json").value["filed"], "In two steps") == "valid"


def test_a_mail_whose_blocks_never_come_is_given_up(town: Town) -> None:
    """When no server would keep them any longer; that is told once."""
    rita, sealed = town.rita, b"never stored anywhere"
    announce(rita, sealed)
    rita.does("fetch")
    arrivals = visits(rita, LIFETIME)
    assert any("is given up: its blocks never came" in doubt for doubt in arrivals.doubts)
    assert data_key(sealed) not in {one.announcement.message_hash for one in arrivals.waiting}


def test_fetching_ends_where_a_mail_becomes_too_large(town: Town, tmp_path: Path) -> None:
    """What was announced as one block may still have more bytes than are taken unasked."""
    rita, pia = town.rita, town.senders["mail"]
    sealed = written(pia, rita, "Not small", tmp_path)
    leave(rita, sealed)
    (entry,) = (e for e in rita.mailbox_entries() if e.message_hash == data_key(sealed))

    async def fetch(remote: RemoteServer, limit: int) -> Here | Missing | TooLarge:
        peer, directory = Peer(remote, {}), make_private(tmp_path / str(limit))
        fetching = Fetching(
            peer, entry, directory, watcher=Nobody(), limit=limit, doubts=[]
        )  # fmt: skip
        return await fetching.bring(
            lambda joined: open_seal(joined, keyring=keyring, passphrase=None, directory=directory)
        )

    with Keyring(rita.home / "gnupg") as keyring:
        small, enough = (
            rita.asks_server(partial(fetch, limit=limit))
            for limit in (len(sealed) - 1, len(sealed))
        )
    assert small == TooLarge()
    assert isinstance(enough, Here)
