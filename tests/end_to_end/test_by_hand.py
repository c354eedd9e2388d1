"""Mail without our program: read by gpg, unzip and sha1sum alone, and written by gpg and zip."""

import subprocess
from pathlib import Path

from tests.end_to_end.forging import leave
from tests.end_to_end.programs import SECONDS, User

from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.keys import BlockKey

# $1: a directory with the blocks, by their keys. $2: GnuPG's home. $3: the MessageHash.
# The other arguments: the keys of the blocks, in order.
OPEN = r"""
set -eu
cd "$1"; home=$2; hash=$3; shift 3
for key in "$@"; do
    [ "$(sha1sum "$key" | cut -d' ' -f1 | tr a-f A-F)" = "$key" ]
    cat "$key" >> sealed
done
[ "$(sha1sum sealed | cut -d' ' -f1 | tr a-f A-F)" = "$hash" ]
gpg --homedir "$home" --batch --quiet --output plain --decrypt sealed
length=$((0x$(head -c 2 plain | od -An -tx1 | tr -d ' ')))
tail -c +3 plain | head -c $length > signature
tail -c +$((3 + length)) plain > message.zip
gpg --homedir "$home" --batch --verify signature message.zip
unzip -q message.zip -d opened
"""

# $1: a directory with what goes into the ZIP. $2: GnuPG's home. $3: the recipient's key id.
WRITE = r"""
set -eu
cd "$1"; home=$2
zip -q -X message.zip *
gpg --homedir "$home" --batch --output signature --detach-sign message.zip
length=$(stat -c %s signature)
printf "\\x$(printf %02x $((length / 256)))\\x$(printf %02x $((length % 256)))" > plain
cat signature message.zip >> plain
gpg --homedir "$home" --batch --trust-model always --output sealed -r "$3" --encrypt plain
"""


def by_shell(script: str, *arguments: object) -> str:
    """Run a shell script, and return what it said."""
    done = subprocess.run(
        ["bash", "-c", script, "script", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_mail_we_send_is_opened_by_gpg_unzip_and_sha1sum(
    alice: User, bob: User, tmp_path: Path
) -> None:
    """Blocks, hash, seal, signature and ZIP are what the specification says, and nothing else."""
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * 40_000)
    before = {entry.message_hash for entry in bob.mailbox_entries()}
    assert alice.sends([bob], "For a script", "--attach", str(large)).exit_code == 0
    (entry,) = (one for one in bob.mailbox_entries() if one.message_hash not in before)
    blocks = tmp_path / "blocks"
    blocks.mkdir()

    async def fetch(remote: RemoteServer) -> None:
        for key in entry.data_blocks:
            with (blocks / key.hex).open("wb") as file:
                assert await remote.get_data(key, file.write) is not None

    bob.asks_server(fetch)
    assert len(entry.data_blocks) == 2
    keys = [key.hex for key in entry.data_blocks]
    # Bob's own program has not seen the mail; his GnuPG learns Alice's key from her announcement.
    bob.does("fetch")
    said = by_shell(OPEN, blocks, bob.home / "gnupg", entry.message_hash.hex, *keys)
    assert "Good signature" in said
    opened = {path.name for path in (blocks / "opened").iterdir()}
    assert (blocks / "opened" / "_large.bin").read_bytes() == large.read_bytes()
    assert "Subject: For a script" in (blocks / "opened" / "HEADER.TXT").read_text()
    assert {"HEADER.TXT", "BODY.TXT", f"KEY_{alice.key_id.hex}.ASC"} <= opened
    assert any(name.startswith(f"ACK_{bob.key_id.hex}") for name in opened)


def test_a_mail_written_by_gpg_and_zip_arrives(alice: User, bob: User, tmp_path: Path) -> None:
    """It is verified, shown, saved and acknowledged like any other."""
    bob.does("key", "find", alice.address, "--server", str(alice.server.address))
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    assert alice.sends([bob], "So that GnuPG knows the key").exit_code == 0
    parts = tmp_path / "parts"
    parts.mkdir()
    secret = b"a secret of 20 bytes"
    ack_key = subprocess.run(["sha1sum"], input=secret, capture_output=True, check=True)
    head = (
        f"From: Alice <{alice.address}> {alice.key_id.hex.lower()}",
        f"To: Bob <{bob.address}> {bob.key_id.hex.lower()}",
        f"KeyTransport-{bob.key_id.hex.lower()}: server={bob.server.address}",
        f"Ack-{bob.key_id.hex.lower()}: {ack_key.stdout.split()[0].decode()}",
        f"MessageUniqueId: {'ab' * 20}",
        "Subject: By hand",
        "Date: 2026-01-01T00:00:00Z",
        f"KeyTransport-{alice.key_id.hex.lower()}: server={alice.server.address}",
    )
    (parts / "HEADER.TXT").write_text("\r\n".join((*head, "")))
    (parts / "BODY.TXT").write_text("written with an editor")
    (parts / "_note.txt").write_text("attached by hand")
    (parts / f"ACK_{bob.key_id.hex}.BIN").write_bytes(secret)
    by_shell(WRITE, parts, alice.home / "gnupg", bob.key_id.hex)
    leave(bob, (parts / "sealed").read_bytes())
    filed = bob.does("fetch", "--json").value["filed"]
    (mail,) = (one for one in filed if one["subject"] == "By hand")
    assert mail["signature"] == "valid"
    assert (
        bob.does("read", str(mail["number"]), "--json").value["text"] == "written with an editor"
    )
    bob.does("save", str(mail["number"]), str(tmp_path))
    assert (tmp_path / "note.txt").read_text() == "attached by hand"
    acknowledged = BlockKey.from_hex(head[3].split(": ")[1])

    async def is_there(remote: RemoteServer) -> bool:
        return await remote.get(acknowledged) is not None

    assert alice.asks_server(is_there)
