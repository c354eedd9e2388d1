"""Seals and opens a large attachment, and prints the most memory that this process ever had.

Arguments: a directory with a short path, and the size of the attachment in MiB.
"""

import sys
from pathlib import Path

from tests.client.samples import header

from sealmail_client.keyring import Keyring
from sealmail_client.letters import Attachment, Letter
from sealmail_client.message_zip import open_letter
from sealmail_client.sealing import open_seal, seal


def main(directory: Path, mebibytes: int) -> None:
    """Send the file from a key to itself."""
    source, sealed = directory / "large", directory / "sealed"
    with source.open("wb") as file:
        file.truncate(mebibytes * 1024 * 1024)
    with Keyring(directory / "gpg") as keyring:
        key = keyring.create("Amy", "amy@a.example", None)
        letter = Letter(header(key, key), "see below", attachments=(Attachment("large", source),))
        seal(
            letter,
            keyring=keyring,
            signer=key,
            passphrase=None,
            readers=[key],
            target=sealed,
            zip_file=directory / "own.zip",
        )
        (directory / "own.zip").unlink()
        opened = open_seal(sealed, keyring=keyring, passphrase=None, directory=directory)
        sealed.unlink()
        assert opened.check is not None
        assert opened.check.valid
    received = open_letter(opened.zip_file)
    assert received.attachments[0].size == source.stat().st_size
    # Unlike the figure of getrusage, this one does not count the process that started us.
    status = Path("/proc/self/status").read_text()
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
