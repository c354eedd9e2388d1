"""The text of the tree: nothing in it belongs to one machine or to one place to fetch from."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Written with gaps, so that this file does not hold what it looks for.
FOREIGN = re.compile(
    r"(?<![\w.~-])/(?:work|root|opt/[p]ypi|opt/[w]heels|tmp/[b]rief)/"
    r"|[p]ypi\.org|[p]ythonhosted\.org|registry\.[n]pmjs|--(?:extra-)?[i]ndex-url",
)
SWALLOWED = re.compile(r"\|\|\s*(?:[t]rue\b|:(?:\s|$))")


def tracked_files() -> list[Path]:
    """Return the files under version control; a source archive has none to ask about."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: version control says which files belong to the tree")
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file()]


def lines_matching(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    """Return the place and text of each line that matches."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_machine_or_a_registry() -> None:
    """Whoever clones the tree fetches from where their own settings say."""
    assert lines_matching(FOREIGN, tracked_files()) == []


def test_the_architecture_names_every_module() -> None:
    """But the files of commands, jobs and samples, which go by their folders."""
    prose = re.sub(r"```.*?```", "", (ROOT / "docs/architecture.md").read_text(), flags=re.DOTALL)
    named = {text.rpartition("/")[2] for text in re.findall(r"`([^`]+)`", prose)}
    modules = {
        path.stem
        for source in ("protocol", "pow", "server", "client", "spark")
        for path in (ROOT / source).rglob("*.py")
        if not path.stem.startswith("__")
        if path.parent.name not in ("cli", "jobs", "generator")
    }
    assert len(modules) > 150
    assert modules - named == set()


def test_there_is_no_lock_with_addresses() -> None:
    """The locks are requirements/*.txt; uv.lock would write registry addresses into the tree."""
    assert [path for path in tracked_files() if path.name == "uv.lock"] == []


def test_no_step_of_set_up_hides_a_failure() -> None:
    """The Makefile and its scripts end at the first command that fails."""
    paths = [ROOT / "Makefile", *sorted((ROOT / ".ci").iterdir())]
    assert lines_matching(SWALLOWED, paths) == []


@pytest.mark.parametrize(
    ("line", "foreign"),
    [
        ("see /" + "root/.cache", True),
        ("file:///" + "work/main", True),
        ("https://py" + "pi.org/simple", True),
        ("--index" + "-url https://example.org", True),
        ("docs/work/plan.md", False),
        ("the root/ of the tree", False),
        ("example.org", False),
    ],
)
def test_the_search_knows_what_is_foreign(line: str, foreign: bool) -> None:
    """The pattern finds machine paths and registries, and leaves ordinary words alone."""
    assert bool(FOREIGN.search(line)) is foreign
