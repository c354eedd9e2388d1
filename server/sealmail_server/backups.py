"""A backup of a whole server: its store, its configuration and its TLS files; and the way back."""

import asyncio
from pathlib import Path

from sealmail_server.config import (
    CONFIG_NAME,
    CONTROL_PASSWORD_NAME,
    HIDDEN_CERTIFICATE_NAME,
    HIDDEN_KEY_NAME,
    I2P_CERTIFICATE_NAME,
    I2P_KEY_NAME,
    ONION_KEY_NAME,
    STORE_NAME,
    Config,
)
from sealmail_server.setting_rules import BadConfig
from sealmail_store import (
    BlockStore,
    make_directory_durably,
    restore_backup,
    write_durably,
)

_CERTIFICATE_MODE = 0o644
_PRIVATE_MODE = 0o600
# Only a server with a face towards Tor or I2P has these.
_MAY_BE_MISSING = frozenset(
    {
        HIDDEN_CERTIFICATE_NAME,
        HIDDEN_KEY_NAME,
        I2P_CERTIFICATE_NAME,
        I2P_KEY_NAME,
        ONION_KEY_NAME,
        CONTROL_PASSWORD_NAME,
    }
)


async def back_up(directory: Path, config: Config, store: BlockStore, target: Path) -> None:
    """Copy a server into ``target``, new or empty, while it runs; the configuration comes last.

    A copy without ``config.toml`` is one that was cut off. Own TLS files outside the
    directory are not copied.
    """
    await asyncio.to_thread(_check_empty, target)
    await asyncio.to_thread(make_directory_durably, target)
    await store.backup(target / STORE_NAME)
    await asyncio.to_thread(_copy_files, directory, config, target)


def restore(backup: Path, directory: Path) -> None:
    """Make ``directory``, new or empty, the server of which ``backup`` is a copy."""
    if not (backup / CONFIG_NAME).is_file():
        raise BadConfig(f"{backup} is no backup of a server: it has no {CONFIG_NAME}")
    config = Config.load(backup)
    _check_empty(directory)
    make_directory_durably(directory)
    restore_backup(backup / STORE_NAME, directory / STORE_NAME)
    _copy_files(backup, config, directory)


def _copy_files(origin: Path, config: Config, target: Path) -> None:
    for name, mode in (
        (config.certificate, _CERTIFICATE_MODE),
        (config.private_key, _PRIVATE_MODE),
        (HIDDEN_CERTIFICATE_NAME, _CERTIFICATE_MODE),
        (HIDDEN_KEY_NAME, _PRIVATE_MODE),
        (I2P_CERTIFICATE_NAME, _CERTIFICATE_MODE),
        (I2P_KEY_NAME, _PRIVATE_MODE),
        (ONION_KEY_NAME, _PRIVATE_MODE),
        (CONTROL_PASSWORD_NAME, _PRIVATE_MODE),
        (CONFIG_NAME, _PRIVATE_MODE),
    ):
        copy = target / name
        if name in _MAY_BE_MISSING and not (origin / name).exists():
            continue
        if not copy.is_relative_to(target) or ".." in Path(name).parts:
            continue
        make_directory_durably(copy.parent)
        write_durably(copy, (origin / name).read_bytes(), mode=mode)


def _check_empty(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadConfig(f"{target} is not empty; name a directory that is, or a new one")
