"""``sealmaild init``: a data directory with configuration, TLS identity, store and two keys."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sealmail_protocol.commands import ADMINISTRATOR, REPLICATION
from sealmail_server.accounts import add_account, new_auth_key
from sealmail_server.config import (
    CERTIFICATE_NAME,
    CONFIG_NAME,
    KEY_NAME,
    STORE_NAME,
    Config,
    config_text,
)
from sealmail_server.setting_rules import BadConfig, Listen, check_host_name
from sealmail_server.tls_identity import make_tls_identity
from sealmail_store import BlockStore, WriteView, make_directory_durably, write_durably


@dataclass(frozen=True, slots=True)
class FirstKeys:
    """The two auth keys that are shown once."""

    administrator: str = field(repr=False)
    replication: str = field(repr=False)


def set_up(
    directory: Path,
    listen: Listen,
    names: Sequence[str],
    domain: str,
    clock: Callable[[], datetime],
) -> tuple[Config, FirstKeys]:
    """Make ``directory`` a server; the configuration is written last, and marks it complete."""
    if (directory / CONFIG_NAME).exists():
        raise BadConfig(f"{directory} holds a server already; it is left as it is")
    for name in (*names, *filter(None, (domain,))):
        check_host_name(name)
    now = clock()
    make_directory_durably(directory)
    make_tls_identity(directory / CERTIFICATE_NAME, directory / KEY_NAME, names, now)
    keys = FirstKeys(new_auth_key(), new_auth_key())
    asyncio.run(_fill_store(directory / STORE_NAME, keys, now))
    text = config_text(
        listen=str(listen), names=tuple(names), **({"domain": domain} if domain else {})
    )
    write_durably(directory / CONFIG_NAME, text.encode())
    return Config.load(directory), keys


async def _fill_store(directory: Path, keys: FirstKeys, now: datetime) -> None:
    def fill(view: WriteView) -> None:
        add_account(view, keys.administrator, ADMINISTRATOR, now)
        add_account(view, keys.replication, REPLICATION, now)
        view.note_time(now)

    async with BlockStore.open(directory, create=True) as store:
        await store.write(fill)
