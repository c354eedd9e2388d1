"""The demo, and whether the words we print are commands that exist."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.end_to_end.programs import PROGRAMS, SECONDS

from sealmail_client.cli import main as sealmail
from sealmail_server.cli import main as sealmaild
from sealmail_spark.cli.program import main as sealmail_audit

ROOT = Path(__file__).parents[2]
DOCUMENTED = {"sealmail": sealmail, "sealmaild": sealmaild, "sealmail-audit": sealmail_audit}
JOURNEY = [sys.executable, str(ROOT / "bench" / "journey.py")]
END = "The mail was delivered, verified and acknowledged."
NOTHING_LOST = "Neither loss was more than a pause: no mail is missing."
# Some twenty programs one after the other, twice at the same time, on a busy machine.
JOURNEY_SECONDS = 300


def start(*arguments: str) -> "subprocess.Popen[str]":
    """Start the journey of one mail."""
    return subprocess.Popen([*JOURNEY, *arguments], stdout=subprocess.PIPE, text=True)


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Return what the process says up to the line with ``text``."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(f"it ended without {text!r}:\n{said}")


def stop(process: "subprocess.Popen[str]") -> None:
    """End a journey that stays, in good order."""
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=SECONDS)
    assert "stopping" in rest
    assert process.returncode == 0


def test_the_demo_ends_well_and_the_kept_one_is_used_again(place: Path) -> None:
    """``make demo`` exits 0; ``make run`` stays until it is stopped, and starts again."""
    demo, kept = start(), start("--keep", str(place / "kept"))
    said = read_until(kept, "sealmail --home") + read_until(kept, "--help")
    assert END in said
    told, _ = demo.communicate(timeout=JOURNEY_SECONDS)
    assert demo.returncode == 0
    assert END in told
    assert told.rstrip().endswith(NOTHING_LOST)
    assert not re.search(r"auth[-_ ]key:? [0-9A-F]{40}", told + said)
    assert "sealmailpair1" not in told + said
    stop(kept)
    again = start("--keep", str(place / "kept"))
    said = read_until(again, "stay up until Ctrl-C")
    assert END in said
    assert "init" not in said
    stop(again)


def commands(group: click.Command, *names: str) -> list[tuple[str, ...]]:
    """Return the words of every command of a program."""
    if not isinstance(group, click.Group):
        return [names]
    return [
        names,
        *(words for name, one in group.commands.items() for words in commands(one, *names, name)),
    ]


@pytest.mark.parametrize("words", commands(sealmail), ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    """``--help`` works without a home and says what the command is for."""
    shown = CliRunner().invoke(sealmail, [*words, "--help"])
    assert shown.exit_code == 0
    assert shown.output.startswith("Usage:")


# Nothing comes of these but what the exit code says, or a file that the command line names.
WITHOUT_JSON = {
    ("identity", "default"),
    ("identity", "export"),
    ("identity", "passphrase"),
    ("identity", "remove"),
    ("key", "forget"),
    ("server", "accept"),
}


def own_options(group: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield every command that does something by itself, with its options."""
    if not isinstance(group, click.Group) or group.invoke_without_command:
        yield names, {option for one in group.params for option in one.opts}
    if isinstance(group, click.Group):
        for name, one in group.commands.items():
            yield from own_options(one, *names, name)


def test_every_command_but_a_few_speaks_json_to_scripts() -> None:
    """Those few are named, so that no new command is forgotten."""
    silent = {words for words, options in own_options(sealmail) if "--json" not in options}
    assert silent == WITHOUT_JSON


@pytest.mark.parametrize("program", [sealmail, sealmaild])
def test_no_list_of_commands_is_cut_off(program: click.Command) -> None:
    """Each command has its whole sentence, in lines that fit."""
    for words in commands(program):
        shown = CliRunner().invoke(program, [*words, "--help"], terminal_width=80).output
        _, _, listed = shown.partition("\nCommands:\n")
        assert "..." not in listed
        assert all(len(line) <= 80 for line in listed.splitlines())


def test_a_question_that_nobody_answers_says_what_to_do(place: Path) -> None:
    """A script that forgot an answer ends as one whose command line is wrong."""
    command = [str(PROGRAMS / "sealmail"), "--home", str(place / "home"), "init"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 2
    assert "nobody is there to answer 'Your name': give all answers as options" in done.stderr


def test_the_installed_programs_start() -> None:
    """Both are where the environment's other programs are."""
    for name in ("sealmail", "sealmaild"):
        done = subprocess.run([PROGRAMS / name, "--version"], capture_output=True, text=True)
        assert done.stdout.startswith(name)


def documented_lines() -> list[str]:
    """Return every command to one of our programs in README and user guide, in text too."""
    lines = []
    for page in ("README.md", "docs/user-guide.md"):
        text = (ROOT / page).read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            lines += [line for line in block.splitlines() if line.startswith("sealmail")]
        lines += re.findall(
            r"`(sealmail[a-z-]* [^`]+)`", re.sub("```.*?```", "", text, flags=re.S)
        )
    return list(dict.fromkeys(" ".join(line.split()) for line in lines))


@pytest.mark.parametrize("line", documented_lines())
def test_the_pages_give_commands_and_options_that_exist(line: str) -> None:
    """The program itself reads the words, as far as its commands go."""
    program, *words = takewhile(lambda word: word != "<", shlex.split(line, comments=True))
    command: click.Command = DOCUMENTED[program]
    while isinstance(command, click.Group):
        # Options of a group stand before its command.
        _, words, _ = command.make_parser(click.Context(command)).parse_args(words)
        if not words and command.invoke_without_command:
            return
        command = command.commands[words.pop(0)]
    command.make_parser(click.Context(command)).parse_args(words)
