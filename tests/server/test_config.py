"""Settings: every default is written down, and a wrong line is named with what was meant."""

import tomllib
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from sealmail_protocol.blocks import BlockType
from sealmail_server.config import Config, config_text
from sealmail_server.limits import Limits
from sealmail_server.setting_rules import BadConfig, Listen


def loaded(directory: Path, text: str) -> Config:
    """Write a configuration, and read it."""
    (directory / "config.toml").write_text(text)
    return Config.load(directory)


def test_the_first_file_shows_every_default_as_a_comment(tmp_path: Path) -> None:
    """Taking the comment signs away changes nothing: what is shown is what holds."""
    text = config_text(listen="127.0.0.1:0", names=("mail.example.org",))
    assert loaded(tmp_path, text) == Config("127.0.0.1:0", ("mail.example.org",))
    shown = [line.removeprefix("# ") for line in text.splitlines() if " = " in line]
    assert [line.split(" = ")[0] for line in shown] == [each.name for each in fields(Config)]
    defaults = Config.of(tomllib.loads("\n".join(shown)))
    assert defaults == Config("127.0.0.1:0", ("mail.example.org",))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("max_conections = 5", "did you mean 'max_connections'?"),
        ("idle = 5", "unknown setting 'idle'"),
        ('max_connections = "5"', "max_connections must be of type int"),
        ("max_connections = true", "max_connections must be of type int"),
        ("max_connections = 0", "max_connections: must be at least 1"),
        ("require_tls = 1", "require_tls must be of type bool"),
        ('listen = "8081"', "listen: '8081' is not HOST:PORT"),
        ('listen = "[::]:70000"', "listen: "),
        ('direct_tls_listen = "nonsense"', "direct_tls_listen: "),
        ('names = "mail.example.org"', "names must be a list"),
        ("names = []", "names: must name at least one host"),
        ('names = ["no host"]', "names: 'no host' is not a host name"),
        ('certificate = ""', "certificate: must be the path of a file"),
        ('dht_network = ""', "dht_network: must be a name of 1 to 100 visible characters"),
        ('partner = "b.example:8081"', "partner_auth_key and partner_pin belong together"),
        ("max_age_days_data = 11", "max_age_days_data: must be from 1 to 10"),
        ("this is not toml", "config.toml: "),
    ],
)
def test_a_wrong_line_is_refused_by_name(tmp_path: Path, line: str, told: str) -> None:
    """The message has the file, the setting and the rule."""
    with pytest.raises(BadConfig) as refused:
        loaded(tmp_path, line)
    assert told in str(refused.value)
    assert "config.toml" in str(refused.value)


def test_a_directory_without_configuration_is_no_server(tmp_path: Path) -> None:
    """The message says how to make one."""
    with pytest.raises(BadConfig, match="sealmaild init"):
        Config.load(tmp_path)


def test_limits_come_from_the_settings(tmp_path: Path) -> None:
    """The defaults are those of the block table; each can be lowered."""
    assert Config().limits == Limits()
    chosen = loaded(tmp_path, "quota_bytes = 7\nmax_age_days_address_claim = 3").limits
    assert chosen.quota_bytes == 7
    assert chosen.max_age[BlockType.ADDRESS_CLAIM] == timedelta(days=3)
    assert chosen.max_age[BlockType.DATA] == timedelta(days=10)


@pytest.mark.parametrize("text", ["[::]:8081", "127.0.0.1:0", "mail.example.org:443"])
def test_addresses_are_written_as_they_are_read(text: str) -> None:
    """IPv6 stands in brackets."""
    assert str(Listen.parse(text)) == text
