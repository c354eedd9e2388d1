"""The import rules of docs/architecture.md, read from the syntax trees of the real packages.

Each rule is a function that lists violations under a root directory. It is run on this tree,
where it must find none, and on planted violations, which it must name.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAY_IMPORT: dict[str, set[str]] = {
    "pow/sealmail_pow": set(),
    "protocol/sealmail_protocol": {"sealmail_pow"},  # only for Difficulty and Stamp
    "protocol/sealmail_net": {"sealmail_protocol"},
    "protocol/sealmail_verify": {"sealmail_protocol"},
    "server/sealmail_store": {"sealmail_protocol", "sealmail_pow"},
    "server/sealmail_server": {
        "sealmail_protocol",
        "sealmail_net",
        "sealmail_pow",
        "sealmail_store",
        "sealmail_verify",
    },
    "client/sealmail_client": {
        "sealmail_protocol",
        "sealmail_net",
        "sealmail_pow",
        "sealmail_verify",
    },
    "spark/sealmail_spark": {
        "sealmail_protocol",
        "sealmail_pow",
        "sealmail_store",
        "sealmail_verify",
    },
}
SOURCE_ROOTS = ("client", "pow", "protocol", "server", "spark")

PURE = "protocol/sealmail_protocol"
PURE_MAY_USE = {"idna", "sealmail_pow", "sealmail_protocol"}
# Files, sockets, processes, threads, clocks and unseeded randomness. `secrets` is not among them:
# it is the default of parameters that tests replace.
IO_MODULE_NAMES = """
    asyncio bz2 cmd concurrent ctypes curses dbm fcntl fileinput ftplib getpass glob grp gzip http
    imaplib importlib io linecache logging lzma mailbox mmap multiprocessing nntplib os pathlib
    poplib posix pty pwd random readline resource runpy sched select selectors shelve shutil signal
    smtplib socket socketserver sqlite3 ssl subprocess sys syslog tarfile telnetlib tempfile
    termios threading time tkinter tty urllib webbrowser wsgiref xmlrpc zipfile zoneinfo
"""
IO_MODULES = set(IO_MODULE_NAMES.split())
IO_CALLS = {"open", "input", "print", "breakpoint"}
CLOCK_METHODS = {"now", "utcnow", "today"}

# Whoever feeds these received bytes runs what a stranger wrote.
CODE_FROM_DATA_CALLS = {"eval", "exec"}
CODE_FROM_DATA_MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}

DYNAMIC_IMPORTS = {"__import__", "import_module"}

Rule = Callable[[Path], list[str]]


def parsed(directory: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Yield every node of every Python file under a directory, with its file."""
    for path in sorted(directory.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
            yield path, node


def imported(node: ast.AST) -> list[str]:
    """Return the top-level packages that a node imports; ``?`` where only a run would tell."""
    match node:
        case ast.Import(names=names):
            return [alias.name.partition(".")[0] for alias in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module.partition(".")[0]]
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if called(node) in DYNAMIC_IMPORTS:
            return [name.partition(".")[0]]
        case ast.Call() if called(node) in DYNAMIC_IMPORTS:
            return ["?"]
        case _:
            return []


def called(node: ast.Call) -> str:
    """Return the last name of what is called: ``now`` for ``datetime.now()``."""
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def called_builtin(node: ast.AST) -> str:
    """Return the name of a call without a dot, else an empty text."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case _:
            return ""


def unlisted_packages(root: Path) -> list[str]:
    """List packages that the table of layers does not know."""
    found = [
        init.parent.relative_to(root).as_posix()
        for source_root in SOURCE_ROOTS
        for init in sorted(root.glob(f"{source_root}/*/__init__.py"))
    ]
    return [package for package in found if package not in MAY_IMPORT]


def upward_imports(root: Path) -> list[str]:
    """List imports of our packages that the table of layers does not allow."""
    return [
        f"{path.relative_to(root).as_posix()} imports {name}"
        for package, allowed in MAY_IMPORT.items()
        for path, node in parsed(root / package)
        for name in imported(node)
        if name == "?" or name.startswith("sealmail_")
        if name not in allowed | {Path(package).name}
    ]


def impure_protocol(root: Path) -> list[str]:
    """List what would let sealmail_protocol touch a file, a socket, a clock or a library."""
    allowed = (sys.stdlib_module_names - IO_MODULES) | PURE_MAY_USE
    found = []
    for path, node in parsed(root / PURE):
        where = path.relative_to(root).as_posix()
        found += [f"{where} imports {name}" for name in imported(node) if name not in allowed]
        if called_builtin(node) in IO_CALLS:
            found.append(f"{where} calls {called_builtin(node)}")
        match node:
            case ast.Attribute(attr=attribute) if attribute in CLOCK_METHODS:
                found.append(f"{where} reads the clock by {attribute}")
            case _:
                pass
    return found


def code_from_data(root: Path) -> list[str]:
    """List what turns data into running code, anywhere in the tree, tests included."""
    found = []
    for directory in (*SOURCE_ROOTS, "bench", "tests"):
        for path, node in parsed(root / directory):
            names = {called_builtin(node)} & CODE_FROM_DATA_CALLS
            names |= set(imported(node)) & CODE_FROM_DATA_MODULES
            found += [f"{path.relative_to(root).as_posix()} uses {name}" for name in sorted(names)]
    return found


RULES: list[Rule] = [unlisted_packages, upward_imports, impure_protocol, code_from_data]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_this_tree_keeps_the_rule(rule: Rule) -> None:
    """The packages as they are break no rule."""
    assert rule(ROOT) == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_the_table_names_real_packages(package: str) -> None:
    """A renamed or removed package cannot leave its line, and so a gap, in the table."""
    assert (ROOT / package / "__init__.py").is_file()


def test_the_layers_have_no_cycle() -> None:
    """Following the table downwards always ends; server and client do not reach each other."""
    below = {Path(package).name: allowed for package, allowed in MAY_IMPORT.items()}

    def reachable(name: str, seen: tuple[str, ...] = ()) -> set[str]:
        assert name not in seen, f"cycle: {(*seen, name)}"
        return set().union(
            below[name], *(reachable(lower, (*seen, name)) for lower in below[name])
        )

    reach = {name: reachable(name) for name in below}
    assert "sealmail_client" not in reach["sealmail_server"]
    assert "sealmail_server" not in reach["sealmail_client"]
    assert "sealmail_store" not in reach["sealmail_client"]


@pytest.mark.parametrize(
    ("rule", "path", "source", "complaint"),
    [
        (upward_imports, "server/sealmail_server/a.py", "import sealmail_client", "imports"),
        (upward_imports, "client/sealmail_client/cli/a.py", "import sealmail_server.x", "imports"),
        (upward_imports, "client/sealmail_client/a.py", "import sealmail_store", "imports"),
        (upward_imports, "pow/sealmail_pow/a.py", "from sealmail_protocol import x", "imports"),
        (
            upward_imports,
            "protocol/sealmail_protocol/a.py",
            "def f():\n    from sealmail_net.tls import x",
            "imports sealmail_net",
        ),
        (
            upward_imports,
            "protocol/sealmail_verify/a.py",
            "import importlib\nimportlib.import_module('sealmail_store.schema')",
            "imports sealmail_store",
        ),
        (upward_imports, "server/sealmail_server/a.py", "__import__(name)", "imports ?"),
        (unlisted_packages, "server/sealmail_extra/__init__.py", "", "sealmail_extra"),
        (impure_protocol, "protocol/sealmail_protocol/a.py", "import socket", "imports socket"),
        (impure_protocol, "protocol/sealmail_protocol/a.py", "import os.path", "imports os"),
        (impure_protocol, "protocol/sealmail_protocol/a.py", "import click", "imports click"),
        (impure_protocol, "protocol/sealmail_protocol/b/c.py", "open('x')", "calls open"),
        (impure_protocol, "protocol/sealmail_protocol/a.py", "datetime.now(UTC)", "by now"),
        (impure_protocol, "protocol/sealmail_protocol/a.py", "clock = datetime.now", "by now"),
        (code_from_data, "server/sealmail_server/a.py", "eval(line)", "uses eval"),
        (code_from_data, "bench/a.py", "exec(line)", "uses exec"),
        (code_from_data, "spark/sealmail_spark/a.py", "import pickle", "uses pickle"),
        (code_from_data, "tests/a.py", "from marshal import loads", "uses marshal"),
    ],
)
def test_a_planted_violation_is_named(
    tmp_path: Path, rule: Rule, path: str, source: str, complaint: str
) -> None:
    """Each rule finds the one violation in an otherwise empty tree, and says where it is."""
    planted = tmp_path / path
    planted.parent.mkdir(parents=True)
    planted.write_text(source)
    (found,) = rule(tmp_path)
    assert found.startswith(path.removesuffix("/__init__.py"))
    assert complaint in found


@pytest.mark.parametrize(
    "source",
    [
        "from . import keys",
        "from sealmail_protocol.keys import BlockKey",
        "from sealmail_pow import Stamp",
        "import hashlib, secrets, unicodedata, idna",
        "re.compile(rb'x')",
    ],
)
def test_what_is_allowed_is_left_alone(tmp_path: Path, source: str) -> None:
    """Relative imports, lower layers and computation break no rule."""
    planted = tmp_path / PURE / "a.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(source)
    assert [found for rule in RULES for found in rule(tmp_path)] == []
