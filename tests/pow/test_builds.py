"""Other builds of the compiled search: with sanitizers, with small places, without x86."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hatch_build import OPTIONS

from sealmail_pow import kernels

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pow" / "sealmail_pow"
TESTS = ROOT / "tests" / "pow"
KERNEL_TESTS = TESTS / "test_kernels.py"
SEARCH_TESTS = TESTS / "test_search.py"
CHECK_TESTS = TESTS / "test_check.py"
VECTOR_TESTS = TESTS / "test_vectors.py"
CHECKS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
]
PORTABLE = ["portable", "python"]
# Prints the work of searches for six bits more than the 26 that a place has.
WORK_BEYOND_PLACES = """
from random import Random
from statistics import fmean
from sealmail_pow import Difficulty, solve
from sealmail_pow.odds import expected_hashes
seeded, price = Random(26), Difficulty(32)
hashes = [solve(b"%d" % n, price, random_bytes=seeded.randbytes).hashes for n in range(200)]
print(fmean(hashes) / expected_hashes(price))
"""


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


def built_package(
    directory: Path, *further_options: str, level: str = "-O1", compiler: str = "gcc"
) -> Path:
    """Copy the package to a directory, with its C compiled in another way."""
    copy = directory / "sealmail_pow"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    module = copy / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    # Otherwise as the installed one, whose -O3 takes long with all checks.
    options = [level if option == "-O3" else option for option in OPTIONS] + ["-Werror"]
    include = f"-I{sysconfig.get_path('include')}"
    sources = sorted(copy.glob("kernel/*.c"))
    run(compiler, *options, *further_options, include, *sources, "-o", module)
    return copy


def settings_for(copy: Path, expected: list[str]) -> dict[str, str]:
    """Return the environment in which Python finds that package, which has these kernels."""
    settings = {
        "PYTHONPATH": str(copy.parent),
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": run("gcc", "-print-file-name=libasan.so").strip(),
        # The interpreter itself leaves memory to the system when it ends.
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    where = "import sealmail_pow as p; print(p.__file__, *p.kernels())"
    found = run(sys.executable, "-c", where, **settings).split()
    assert found == [str(copy / "__init__.py"), *expected]
    return settings


def run_tests(settings: dict[str, str], *what: str | Path) -> None:
    """Run tests with a built package in the place of the installed one."""
    options = ("-q", "-m", "not long", "-p", "no:cacheprovider", "--timeout=600")
    assert " passed" in run(sys.executable, "-m", "pytest", *options, *what, **settings)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "tests", [[KERNEL_TESTS, SEARCH_TESTS], [CHECK_TESTS, VECTOR_TESTS]], ids=["search", "check"]
)
def test_the_kernel_tests_pass_under_the_sanitizers(tmp_path: Path, tests: list[Path]) -> None:
    """Neither a byte out of bounds nor an undefined operation happens in any kernel test."""
    run_tests(settings_for(built_package(tmp_path, *CHECKS), kernels()), *tests)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_more_bits_than_a_place_has_are_found(tmp_path: Path) -> None:
    """Beyond 64 bits walks meet in vain at times, and go on; here beyond 26 bits, to see it.

    Six bits beyond, as bd,70,2 is, the work is less than twice the expected one.
    """
    copy = built_package(tmp_path, *CHECKS, "-DPLACE_BITS=26")
    settings = settings_for(copy, kernels())
    run_tests(settings, SEARCH_TESTS, "-k", "any_number_of_bits or threads")
    work = float(run(sys.executable, "-c", WORK_BEYOND_PLACES, **settings))
    assert 1 < work < 2


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_portable_code_passes_alone(tmp_path: Path) -> None:
    """Without the instructions of x86, as on other processors, all of the search is the same."""
    copy = built_package(tmp_path, *CHECKS, "-DPORTABLE_ONLY")
    run_tests(settings_for(copy, PORTABLE), KERNEL_TESTS, SEARCH_TESTS, CHECK_TESTS)


def test_a_portable_build_hashes_and_verifies(tmp_path: Path) -> None:
    """The plain SHA-256 agrees with the standard library, on short data, long data and batches."""
    copy = built_package(tmp_path, "-DPORTABLE_ONLY")
    chosen = "a_step or full_table or good_stamps or many_stamps or serves_long"
    run_tests(settings_for(copy, PORTABLE), KERNEL_TESTS, "-k", chosen)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_kernels_pass_as_they_are_shipped(tmp_path: Path) -> None:
    """What only -O3 makes of the code, as loops in vectors, is checked as well."""
    copy = built_package(tmp_path, *CHECKS, level="-O3")
    run_tests(settings_for(copy, kernels()), KERNEL_TESTS)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang here")
def test_the_kernels_pass_as_clang_builds_them(tmp_path: Path) -> None:
    """The other compiler takes the same sources without a warning."""
    copy = built_package(tmp_path, level="-O3", compiler="clang")
    run_tests(settings_for(copy, kernels()), KERNEL_TESTS, SEARCH_TESTS)


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
