"""docs/operations.md against the program: no command, setting or exit code is missing or stale."""

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

from sealmail_server.cli import main
from sealmail_server.cli.common import Exit
from sealmail_server.config import Config

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def paths_of(command: click.Command, start: str = "") -> list[str]:
    """Return the words of every command below a group."""
    if not isinstance(command, click.Group):
        return [start]
    return [
        path
        for name, each in command.commands.items()
        for path in paths_of(each, f"{start} {name}".strip())
    ]


def test_every_command_has_its_section_and_every_section_a_command() -> None:
    """Neither an undocumented command nor a promise without one."""
    headings = re.findall(r"^### ([a-z ]+?)(?: \(\*beside\*\))?$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(paths_of(main))


@pytest.mark.parametrize("path", paths_of(main))
def test_every_option_is_named_in_its_section(path: str) -> None:
    """--data, --json and --help are explained once, for all."""
    section = re.split(rf"^### {path}\b.*$", PAGE, flags=re.MULTILINE)[1].split("\n### ")[0]
    command: click.Command = main
    for word in path.split():
        assert isinstance(command, click.Group)
        command = command.commands[word]
    options = {name for each in command.params for name in each.opts if name.startswith("--")}
    options -= {"--data", "--json", "--help", "--verbose"}
    assert {name for name in options if name not in section} == set()


def test_every_setting_is_in_the_table_with_its_default() -> None:
    """The table of section 4 and the code agree."""
    section = PAGE.split("\n## 4 Settings\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    shown: dict[str, str] = {}
    for names, defaults in rows:
        listed, values = re.findall(r"`([a-z0-9_]+)`", names), defaults.split(", ")
        values = values if len(values) == len(listed) else values * len(listed)
        shown |= dict(zip(listed, values, strict=True))
    for each in fields(Config):
        text = shown[each.name].strip("`").replace('["localhost"]', "('localhost',)")
        text = text.replace("[]", "()")
        expected = str(each.default).lower() if isinstance(each.default, bool) else each.default
        assert text.strip('"') == str(expected), each.name


def test_every_exit_code_is_in_the_table() -> None:
    """Also 0, and 2, which is click's."""
    table = PAGE.split("| exit code | means |")[1]
    assert re.findall(r"^\| ([0-9]) \|", table, re.MULTILINE) == sorted(
        map(str, {0, 2, *map(int, Exit)})
    )
