"""A session goes on whatever is shown, and beside it stands whether a known CA speaks for it."""

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.samples import DATE
from tests.net.authority import CLIENT, DAY, Authority
from tests.net.conftest import Identity, make_identity
from tests.net.small_server import LOOPBACK, READY, ScriptedServer, SmallServer, serving

from sealmail_client.domain_names import vouches_for
from sealmail_client.judged_tls import JudgedHandshake, NoCertificates, judged_handshake
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import BadAnswer, TlsFailed
from sealmail_net.handshakes import Shown
from sealmail_net.pins import MemoryPins
from sealmail_net.tls import server_context
from sealmail_pow import Stamp
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.keys import DataKeyHasher

DOMAIN = "b.example"
ROOT = Authority("the root")
BETWEEN = Authority("between", issuer=ROOT)
STRANGER = Authority("the root")
NO_AUTHORITY = Authority("no authority", issuer=ROOT, is_ca=False)

Issue = Callable[[Path], tuple[Path, Path]]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    """Return a server's key with a certificate that signs itself."""
    return make_identity(tmp_path_factory.mktemp("identity"))


def judging(directory: Path, root: Authority = ROOT) -> DialSettings:
    """Return settings of a client who believes ``root``."""
    handshake = JudgedHandshake(root.root_file(directory / "root.pem"))
    return replace(LOOPBACK, handshake=handshake)


def shown_by(tls: ssl.SSLContext, settings: DialSettings) -> Shown:
    """Talk with a server that shows ``tls``, and return what the session was judged to be."""

    async def scene() -> Shown:
        async with serving(SmallServer(tls)) as (address, _):
            server = await dial(address, settings, MemoryPins(), strict_pin=True)
            async with server:
                assert await server.ping("still here") == "still here"
                return server.shown

    return asyncio.run(scene())


def names(*names: str, by: Authority = ROOT, **more: object) -> Issue:
    """Return who makes a certificate with these names."""
    return lambda directory: by.issue(directory, names, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "issue",
    [
        names(DOMAIN),
        names("cmsvr.b.example"),
        names("*.b.example"),  # which cmsvr.b.example is one of
        names("other.example", "B.EXAMPLE"),
        names(DOMAIN, by=BETWEEN),
    ],
    ids=["domain", "cmsvr", "wildcard", "one of several", "intermediate"],
)
def test_a_certificate_for_the_domain_speaks_for_it(issue: Issue, tmp_path: Path) -> None:
    """For the domain itself, or for the name under which its servers are found."""
    shown = shown_by(server_context(*issue(tmp_path / "server")), judging(tmp_path))
    assert shown.ca_verified
    assert vouches_for(shown, DOMAIN)


@pytest.mark.parametrize(
    ("issue", "verified"),
    [
        (names(DOMAIN, ends=-timedelta(hours=1)), False),
        (names(DOMAIN, starts=timedelta(hours=1)), False),
        (names(DOMAIN, by=STRANGER), False),
        (names(DOMAIN, by=NO_AUTHORITY), False),
        (names(DOMAIN, by=BETWEEN, with_chain=False), False),
        (names(DOMAIN, usage=CLIENT), False),
        (names("other.example"), True),
        (names("mail.b.example"), True),
        (names("b.example.net"), True),
        (names("*.example"), True),
        (names("*.cmsvr.b.example"), True),
        (names("c*.b.example"), True),
        (names(common_name=DOMAIN), True),
        (names("127.0.0.1"), True),
    ],
    ids=[
        "expired", "not yet", "stranger of the same name", "signed by no CA", "gap in the chain",
        "for clients", "other domain", "another host of it", "prefix", "wildcard of a top level",
        "wildcard below", "half a wildcard", "common name only", "address",
    ],
)  # fmt: skip
def test_any_other_certificate_does_not(issue: Issue, verified: bool, tmp_path: Path) -> None:
    """The session is used all the same; only the verdict differs."""
    shown = shown_by(server_context(*issue(tmp_path / "server")), judging(tmp_path))
    assert shown.ca_verified is verified
    assert not vouches_for(shown, DOMAIN)


def test_signed_hosts_are_names_too(tmp_path: Path) -> None:
    """A host by its name or its address, exactly as the record has it."""
    issued = ROOT.issue(tmp_path / "server", ["mail.provider.example", "192.0.2.7", "2001:db8::7"])
    shown = shown_by(server_context(*issued), judging(tmp_path))
    for host in ("mail.provider.example", "192.0.2.7", "2001:db8::7"):
        assert vouches_for(shown, DOMAIN, [host])
    for host in ("provider.example", "other.provider.example", "192.0.2.8", "2001:db8::8"):
        assert not vouches_for(shown, DOMAIN, [host])


@pytest.mark.parametrize("domain", ["localhost", "192.0.2.7", "[192.0.2.7]", "b.onion", "b..c"])
def test_what_is_no_public_domain_has_no_certificate(domain: str, tmp_path: Path) -> None:
    """Whatever a CA may have signed."""
    issued = ROOT.issue(tmp_path / "server", ["localhost", "192.0.2.7", "b.onion"])
    shown = shown_by(server_context(*issued), judging(tmp_path))
    assert shown.ca_verified
    assert not vouches_for(shown, domain)


def test_a_domain_outside_ascii_is_compared_as_dns_has_it(tmp_path: Path) -> None:
    """The certificate has the IDNA form, the mail address the spoken one."""
    issued = ROOT.issue(tmp_path / "server", ["xn--bcher-kva.example"])
    shown = shown_by(server_context(*issued), judging(tmp_path))
    assert vouches_for(shown, "bücher.example")


def test_a_certificate_that_signs_itself_is_taken_and_proves_nothing(
    identity: Identity, tmp_path: Path
) -> None:
    """As most servers have it; also with TLS 1.2, which original servers speak."""
    context = identity.context()
    assert not shown_by(context, judging(tmp_path)).ca_verified
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    shown = shown_by(context, judging(tmp_path))
    assert shown.certificate == ssl.PEM_cert_to_DER_cert(identity.certificate.read_text())


def test_the_pin_is_the_same_by_either_handshake(identity: Identity, tmp_path: Path) -> None:
    """A server known from a delivery is known in a look-up."""

    async def scene() -> None:
        pins = MemoryPins()
        async with serving(SmallServer(identity.context())) as (address, _):
            for settings in (LOOPBACK, judging(tmp_path)):
                async with await dial(address, settings, pins, strict_pin=True) as server:
                    assert server.pin == identity.pin

    asyncio.run(scene())


def test_large_blocks_go_both_ways(identity: Identity, tmp_path: Path) -> None:
    """More than any buffer holds, with back-pressure, unharmed."""
    content = bytes(range(256)) * 40_000
    hasher = DataKeyHasher()
    hasher.update(content)

    async def scene() -> None:
        received = bytearray()
        header = make_data_header(DATE, Stamp.parse("bd,2a,3b"), len(content))
        async with (
            serving(SmallServer(identity.context())) as (address, _),
            await dial(address, judging(tmp_path), MemoryPins(), strict_pin=True) as server,
        ):
            await server.store_data(hasher.key(), header, (content,))
            await server.get_data(hasher.key(), received.extend)
        assert received == content

    asyncio.run(scene())


def test_a_handshake_that_stalls_ends_at_its_deadline(tmp_path: Path) -> None:
    """It is told as any other failure of TLS, and no connection is left behind."""

    async def scene() -> None:
        async with ScriptedServer(READY, b"PROCEED\r\n").serving() as address:
            settings = replace(judging(tmp_path), answer_deadline=0.3)
            with pytest.raises(TlsFailed, match="too long"):
                await dial(address, settings, MemoryPins(), strict_pin=True)

    asyncio.run(scene())


@pytest.mark.parametrize("garbage", [b"\x15\x03\x03\x00\x02\x02\x28", b"A" * 2000])
def test_garbage_in_a_handshake_fails_it(garbage: bytes, tmp_path: Path) -> None:
    """An alert or nonsense: the reason is OpenSSL's."""

    async def scene() -> None:
        async with ScriptedServer(READY, b"PROCEED\r\n", garbage).serving() as address:
            with pytest.raises(TlsFailed):
                await dial(address, judging(tmp_path), MemoryPins(), strict_pin=True)

    asyncio.run(scene())


def test_a_connection_cut_inside_tls_is_told(identity: Identity, tmp_path: Path) -> None:
    """As over the other handshake."""

    async def scene() -> None:
        small = SmallServer(identity.context(), cut_after=3)
        async with serving(small) as (address, _):
            server = await dial(address, judging(tmp_path), MemoryPins(), strict_pin=True)
            hasher = DataKeyHasher()
            with pytest.raises(BadAnswer, match="ended in the middle"):
                await server.get(hasher.key())
            assert not server.stands

    asyncio.run(scene())


def test_a_store_without_certificates_is_refused_and_stops_no_mail(tmp_path: Path) -> None:
    """The setting is refused; one that went bad later only earns no marks."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for path in (empty, tmp_path / "absent.pem"):
        with pytest.raises(NoCertificates, match=path.name):
            JudgedHandshake(path)
        assert judged_handshake(path) is None


def test_a_directory_of_certificates_is_a_store(tmp_path: Path) -> None:
    """By the hash of their names, as ``openssl rehash`` makes them."""
    store = tmp_path / "store"
    store.mkdir()
    ROOT.root_file(store / "root.pem")
    subprocess.run(["openssl", "rehash", str(store)], check=True)
    settings = replace(LOOPBACK, handshake=JudgedHandshake(store))
    issued = ROOT.issue(tmp_path / "server", [DOMAIN])
    assert shown_by(server_context(*issued), settings).ca_verified


def test_the_system_s_own_authorities_do_not_know_ours(tmp_path: Path) -> None:
    """Without a store of the user's own, a CA that anybody may make proves nothing."""
    settings = replace(LOOPBACK, handshake=JudgedHandshake())
    issued = ROOT.issue(tmp_path / "server", [DOMAIN], ends=10 * DAY)
    assert not shown_by(server_context(*issued), settings).ca_verified
