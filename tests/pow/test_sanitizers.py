"""The compiled search under the eyes of the address and undefined-behaviour sanitizers."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pow" / "sealmail_pow"
TESTS = ROOT / "tests" / "pow"
SEARCH_TESTS = TESTS / "test_search.py"
CHECKS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
]


def run(*command: str | Path, **settings: str) -> str:
    """Run a program to its end, which must be a good one; return what it printed."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
    return done.stdout


def checked_package(directory: Path, *further_options: str) -> Path:
    """Copy the package to a directory, with its C compiled for the sanitizers."""
    copy = directory / "sealmail_pow"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    module = copy / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    include = f"-I{sysconfig.get_path('include')}"
    run(
        "gcc",
        *options,
        *CHECKS,
        *further_options,
        include,
        *sorted(copy.glob("kernel/*.c")),
        "-o",
        module,
    )
    return copy


def run_tests(copy: Path, *what: str | Path) -> str:
    """Run tests with a checked package in the place of the installed one."""
    settings = {
        "PYTHONPATH": str(copy.parent),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": run("gcc", "-print-file-name=libasan.so").strip(),
        # The interpreter itself leaves memory to the system when it ends.
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    where = "import sealmail_pow as p; print(p.__file__, p.IMPLEMENTATION)"
    assert run(sys.executable, "-c", where, **settings).split() == [
        str(copy / "__init__.py"),
        "native",
    ]
    options = ("-q", "-m", "not long", "-p", "no:cacheprovider", "--timeout=600")
    return run(sys.executable, "-m", "pytest", *options, *what, **settings)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_kernel_tests_pass_under_the_sanitizers(tmp_path: Path) -> None:
    """Neither a byte out of bounds nor an undefined operation happens in any kernel test."""
    printed = run_tests(checked_package(tmp_path), TESTS / "test_kernels.py", SEARCH_TESTS)
    assert " passed" in printed


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_more_bits_than_a_place_has_are_found(tmp_path: Path) -> None:
    """Beyond 64 bits walks meet in vain at times, and go on; here beyond 26 bits, to see it."""
    copy = checked_package(tmp_path, "-DPLACE_BITS=26")
    assert " passed" in run_tests(copy, SEARCH_TESTS, "-k", "any_number_of_bits or threads")


@pytest.mark.long
def test_the_sanitizers_are_awake(tmp_path: Path) -> None:
    """A planted read beyond an array's end is found, so silence means that there was none."""
    source = tmp_path / "planted.c"
    source.write_text("int main(int n, char **v) { int a[4] = {0}; (void)v; return a[n + 3]; }\n")
    program = tmp_path / "planted"
    run("gcc", *CHECKS, source, "-o", program)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "out of bounds" in done.stderr or "AddressSanitizer" in done.stderr
