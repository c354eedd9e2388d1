"""The lock files in requirements/: complete, pinned, hashed, free of places to fetch from."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ["run", "test", "spark", "uv"]
# Which parts of pyproject.toml each lock file covers: extras, then dependency groups.
# What spark.txt covers goes to a cluster, which has a Spark of its own.
COVERS = {
    "run": (["server", "client"], ["build"]),
    "test": (["server", "client", "spark"], ["build", "test"]),
    "spark": (["spark"], []),
    "uv": ([], ["uv"]),
}


def entries(lock: str) -> list[str]:
    """Return the entries of a lock file, each with its hashes on one line, comments left out."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return "\n".join(lines).replace("\\\n", " ").splitlines()


def pins(lock: str) -> dict[str, str]:
    """Return the locked version of each package."""
    found: dict[str, str] = {}
    for entry in entries(lock):
        name, version = re.split(r"==|\s", entry, maxsplit=2)[:2]
        found[canonicalize_name(name)] = version
    return found


def asked_for(lock: str) -> list[Requirement]:
    """Return what pyproject.toml asks for in the parts that a lock file covers."""
    extras, groups = COVERS[lock]
    texts: list[str] = [] if lock == "uv" else list(PROJECT["project"]["dependencies"])
    for extra in extras:
        texts += PROJECT["project"]["optional-dependencies"][extra]
    for group in groups:
        texts += [text for text in PROJECT["dependency-groups"][group] if isinstance(text, str)]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_is_an_exact_version_with_hashes(lock: str) -> None:
    """No entry is a range, an address, an option or without a hash."""
    shape = re.compile(r"[a-z0-9.-]+==[\w.]+( ; [^#]+?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    assert entries(lock)
    assert [entry for entry in entries(lock) if not shape.fullmatch(entry)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_answers_pyproject(lock: str) -> None:
    """Every package that pyproject.toml asks for is locked, in a version that it allows."""
    locked = pins(lock)
    for requirement in asked_for(lock):
        name = canonicalize_name(requirement.name)
        if (lock, name) == ("spark", "pyspark"):
            continue
        assert name in locked, f"{name} is not locked; run `make lock`"
        assert locked[name] in requirement.specifier, f"{name}: run `make lock`"


def test_running_and_testing_agree() -> None:
    """One environment serves both: what testing needs includes what running needs, alike."""
    assert pins("run").items() <= pins("test").items()
    assert pins("spark").items() <= pins("test").items()


def test_running_does_not_fetch_what_only_testing_or_spark_needs() -> None:
    """A first start stays small."""
    assert not {"pytest", "hypothesis", "mypy", "ruff", "pyspark"} & pins("run").keys()
