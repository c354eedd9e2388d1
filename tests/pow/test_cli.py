"""The commands under ``sealmail pow``, run as a user runs them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sealmail_client.cli.pow import pow
from sealmail_pow import Difficulty, Stamp, kernels, verify

SAMPLE = "timing sample 0 level 24"
SAMPLE_STAMP = "bd,00000275e,000002960"


def run(*arguments: str | Path, stdin: str = "") -> Result:
    """Run one command."""
    return CliRunner().invoke(pow, [str(argument) for argument in arguments], input=stdin)


def test_a_stamp_is_minted_over_a_file(tmp_path: Path) -> None:
    """What is printed is a stamp and nothing else, good over the file's bytes."""
    letter = tmp_path / "letter"
    letter.write_bytes(b"a letter\r\n")
    done = run("mint", "bd,30,2", letter)
    assert done.exit_code == 0
    assert verify(b"a letter\r\n", Stamp.parse(done.output.removesuffix("\n")), Difficulty(30))


def test_the_deterministic_stamp_is_the_published_one() -> None:
    """Counting from zero over standard input gives the known answer."""
    assert run("mint", "bd,24,2", "--deterministic", stdin=SAMPLE).output == f"{SAMPLE_STAMP}\n"


def test_mint_speaks_json() -> None:
    """Scripts get the stamp and its level."""
    done = run("mint", "bd,24,2", "--deterministic", "--json", stdin=SAMPLE)
    printed = json.loads(done.output)
    assert printed["stamp"] == SAMPLE_STAMP
    assert printed["bits"] >= 24


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "text"),
    [
        pytest.param([], SAMPLE, 0, "worth bd,27,2\n", id="worth"),
        pytest.param(["--difficulty", "bd,24,2"], SAMPLE, 0, "worth bd,27,2\n", id="enough"),
        pytest.param(
            ["--difficulty", "bd,28,2"],
            SAMPLE,
            1,
            "worth bd,27,2, less than bd,28,2\n",
            id="too-few-bits",
        ),
        pytest.param(["--difficulty", "bd,8,2"], "other", 1, "less than bd,8,2", id="other-data"),
    ],
)
def test_verify_tells_the_worth(arguments: list[str], stdin: str, code: int, text: str) -> None:
    """The level is printed, and the exit code tells whether it is enough."""
    done = run("verify", SAMPLE_STAMP, *arguments, stdin=stdin)
    assert done.exit_code == code
    assert text in done.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["mint", "48"], "bd,BITS,NONCES"),
        (["mint", "bd,24,1"], "2 to 16 nonces"),
        (["mint", "bd,24,2", "--threads", "0"], "--threads"),
        (["verify", "bd,1,1"], "repeats a nonce"),
        (["mint", "bd,24,2", "no-such-file"], "No such file"),
    ],
)
def test_a_mistake_is_explained(arguments: list[str], reason: str) -> None:
    """Bad input is refused with its reason and the exit code of a wrong call."""
    done = run(*arguments)
    assert done.exit_code == 2
    assert reason in done.output


def test_bench_foretells_the_prices() -> None:
    """Every kernel has its rate, and seconds grow twofold with two more bits."""
    done = run("bench", "--json")
    report = json.loads(done.output)
    assert list(report["hashes_per_second"]) == kernels()
    seconds = report["seconds"]
    assert list(seconds) == [f"bd,{bits},2" for bits in range(24, 65, 4)]
    assert seconds["bd,48,2"]["one_core"] == pytest.approx(
        4 * seconds["bd,44,2"]["one_core"], rel=1e-3
    )


def test_bench_prints_a_table_for_people() -> None:
    """The prices are there with their units."""
    done = run("bench")
    assert done.exit_code == 0
    assert "million hashes a second" in done.output
    assert any(line.startswith("bd,48,2") for line in done.output.splitlines())
