"""The wheel and the source archive that `make dist` builds, and what they are good for alone."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path
from platform import machine

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.prefix)
UV = ENVIRONMENT / "bin" / "uv"
CACHE = ENVIRONMENT / "cache"
STAMP = ENVIRONMENT / "stamps" / "run"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
EXTENSION = sysconfig.get_config_var("EXT_SUFFIX")
# What hatch_build.py needs to find; with both missing every wheel is pure.
HAS_COMPILER = (
    shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()
)
SOURCE_ROOTS = ("client", "pow", "protocol", "server", "spark")
# What an outer make or environment would pass on, to the harm of a clean one.
NOT_INHERITED = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH", "VIRTUAL_ENV", "DIST"}


def run(*command: str | Path, cwd: Path, **settings: str) -> str:
    """Run a program to its end without the outer environment's traces; return what it printed."""
    environment = {name: text for name, text in os.environ.items() if name not in NOT_INHERITED}
    environment |= {"UV_CACHE_DIR": str(CACHE), **settings}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory into which `make dist` has just built both archives."""
    if not (STAMP.is_file() and CACHE.is_dir()):
        pytest.fail(
            f"{ENVIRONMENT} was not set up by make, so there is no package cache to install from "
            "without a network; run `make clean test`"
        )
    directory = tmp_path_factory.mktemp("dist")
    run("make", "dist", f"DIST={directory}", cwd=ROOT)
    return directory


@pytest.fixture(scope="session")
def wheel(archives: Path) -> Path:
    """Return the one wheel."""
    (path,) = archives.glob("*.whl")
    return path


def new_environment(directory: Path) -> Path:
    """Make an empty environment and return its Python."""
    run(UV, "venv", "--offline", "--python", sys.executable, directory, cwd=directory.parent)
    return directory / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    """Install into an environment, from the cache that set-up filled and nothing else."""
    run(UV, "pip", "install", "--offline", "--python", python, *what, cwd=python.parent)


@pytest.fixture(scope="session")
def pure_wheel(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel that the source archive gives on a machine without a compiler."""
    (source,) = archives.glob("*.tar.gz")
    directory = tmp_path_factory.mktemp("pure")
    options = ("--wheel", "--offline", "--no-build-isolation", "--quiet")
    where = ("--python", sys.executable, "--out-dir", directory)
    run(UV, "build", *options, *where, source, cwd=directory, CC="no-such-compiler")
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of a clean environment with the locked packages and the wheel."""
    python = new_environment(tmp_path_factory.mktemp("clean") / "venv")
    install(python, "--require-hashes", "-r", ROOT / "requirements" / "run.txt")
    install(python, "--no-deps", wheel)
    return python.parent


def test_the_version_is_in_the_names_of_both_archives(archives: Path) -> None:
    """One wheel and one source archive come out, and nothing else."""
    interpreter = f"cp{sys.version_info.major}{sys.version_info.minor}"
    native = f"{interpreter}-{interpreter}-linux_{machine()}"
    wheel = native if HAS_COMPILER else "py3-none-any"
    assert {path.name for path in archives.iterdir()} == {
        f"sealmail-{VERSION}-{wheel}.whl",
        f"sealmail-{VERSION}.tar.gz",
    }


def test_the_wheel_holds_the_compiled_search(wheel: Path) -> None:
    """Exactly one object is in the wheel, that of this Python, and none of the C text."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    compiled = [f"sealmail_pow/_native{EXTENSION}"] if HAS_COMPILER else []
    assert [name for name in names if name.endswith(".so")] == compiled
    assert [name for name in names if name.endswith((".c", ".h"))] == []


def test_without_a_compiler_the_wheel_is_pure(pure_wheel: Path) -> None:
    """It has no object in it, and says by its name that it fits every machine."""
    assert pure_wheel.name == f"sealmail-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(pure_wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith(".so")] == []


@pytest.mark.parametrize("kind", ["wheel", "pure_wheel"])
def test_an_installed_wheel_mints(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Both wheels mint and verify, and tell which search they have."""
    python = new_environment(tmp_path / "venv")
    install(python, "--no-deps", request.getfixturevalue(kind))
    found = run(
        python,
        "-c",
        "from sealmail_pow import IMPLEMENTATION, Difficulty, mint, verify_many\n"
        "stamp = mint(b'a letter', Difficulty(24))\n"
        "print(IMPLEMENTATION, verify_many([(b'a letter', stamp)], Difficulty(24)))\n",
        cwd=tmp_path,
    )
    implementation = "native" if kind == "wheel" and HAS_COMPILER else "python"
    assert found == f"{implementation} [True]\n"


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    """Only sealmail_* packages reach an installation, each marked as typed."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    packages = {name.partition("/")[0] for name in names} - {f"sealmail-{VERSION}.dist-info"}
    expected = {
        marker.parent.name for root in SOURCE_ROOTS for marker in ROOT.glob(f"{root}/*/py.typed")
    }
    assert packages == expected
    assert all(package.startswith("sealmail_") for package in packages)
    assert {f"{package}/py.typed" for package in packages} <= set(names)
    assert f"sealmail-{VERSION}.dist-info/licenses/LICENSE" in names


def test_every_module_of_the_tree_is_in_the_wheel(wheel: Path) -> None:
    """No module is forgotten; as the wheel is built from the source archive, not there either."""
    modules = {
        path.relative_to(ROOT / root).as_posix()
        for root in SOURCE_ROOTS
        for path in (ROOT / root).rglob("*.py")
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.endswith(".py")}
    assert packed == modules


def test_the_source_archive_can_be_built_and_tested_again(archives: Path) -> None:
    """It carries the build description, the locks, the tests and the papers."""
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        ".ci/i2pd",
        ".ci/new-venv",
        ".ci/run",
        ".ci/system-packages",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "hatch_build.py",
        "pow/sealmail_pow/kernel/sha256_portable.c",
        "pow/sealmail_pow/kernel/sha256_lanes.h",
        "pyproject.toml",
        "requirements/run.txt",
        "requirements/test.txt",
        "requirements/uv.txt",
        "tests/conftest.py",
        "tests/packaging/test_wheel.py",
        "tests/vectors/spec_vectors.json",
    } <= names
    assert not any(name.startswith((".venv", ".git/", "dist/")) for name in names)
    assert not any(name.endswith(".so") for name in names)


@pytest.mark.parametrize("program", ["sealmaild", "sealmail"])
def test_an_installed_program_introduces_itself(
    programs: Path, program: str, tmp_path: Path
) -> None:
    """From a clean environment and another directory both programs give help and version."""
    assert f"Usage: {program} " in run(programs / program, "--help", cwd=tmp_path)
    assert VERSION in run(programs / program, "--version", cwd=tmp_path)


def test_the_programs_come_from_the_wheel(programs: Path, tmp_path: Path) -> None:
    """The clean environment does not reach back into this tree."""
    show = "import sealmail_server; print(sealmail_server.__file__)"
    found = Path(run(programs / "python", "-c", show, cwd=tmp_path).strip())
    assert programs.parent in found.parents


def import_all(python: Path, packages: tuple[str, ...], directory: Path) -> None:
    """Import every module of some packages in another environment but the programs' own."""
    found = run(
        python,
        "-c",
        "import importlib, pkgutil, sys\n"
        "for root in sys.argv[1:]:\n"
        "    package = importlib.import_module(root)\n"
        "    for module in pkgutil.walk_packages(package.__path__, root + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
        "    print(root)\n",
        *packages,
        cwd=directory,
    )
    assert found.split() == list(packages)


def test_the_base_install_needs_no_extra(wheel: Path, tmp_path: Path) -> None:
    """Protocol, proof of work and network import with what the wheel asks for by itself."""
    python = new_environment(tmp_path / "venv")
    install(python, "--constraint", ROOT / "requirements" / "run.txt", wheel)
    import_all(python, ("sealmail_protocol", "sealmail_pow", "sealmail_net"), tmp_path)


def test_every_module_of_the_programs_imports(programs: Path, tmp_path: Path) -> None:
    """With what the lock file for running holds, and nothing that only tests need."""
    packages = ("sealmail_server", "sealmail_store", "sealmail_client", "sealmail_verify")
    import_all(programs / "python", packages, tmp_path)


def test_the_installed_programs_work(programs: Path, tmp_path: Path) -> None:
    """An operator makes a server and an account on it; a user mints and verifies a stamp."""
    data, userid, letter = tmp_path / "data", "5E" * 20, tmp_path / "letter"
    printed = run(programs / "sealmaild", "init", "--data", data, cwd=tmp_path)
    assert "administrator auth key: " in printed
    run(programs / "sealmaild", "account", "add", userid, "--data", data, cwd=tmp_path)
    listed = run(programs / "sealmaild", "account", "list", "--data", data, cwd=tmp_path)
    assert userid in listed
    letter.write_text("a letter")
    home = {"SEALMAIL_HOME": str(tmp_path / "home")}
    mint = (programs / "sealmail", "pow", "mint", "bd,16,2", letter)
    stamp = run(*mint, cwd=tmp_path, **home).strip()
    verify = (programs / "sealmail", "pow", "verify", stamp, letter)
    assert "worth bd," in run(*verify, cwd=tmp_path, **home)


@pytest.mark.skipif(not HAS_COMPILER, reason="without a compiler there is no compiled module")
def test_the_compiled_module_shows_nothing_but_its_beginning(wheel: Path, tmp_path: Path) -> None:
    """A name shared with a library of the interpreter would be taken from there."""
    with zipfile.ZipFile(wheel) as archive:
        module = archive.extract(f"sealmail_pow/_native{EXTENSION}", tmp_path)
    shown = run("nm", "--dynamic", "--defined-only", module, cwd=tmp_path).split()
    assert [name for name in shown if name[0].isalpha() and len(name) > 1] == ["PyInit__native"]
