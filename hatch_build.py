"""Compile the proof of work's C; without a compiler the package is pure Python, and says so."""

import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path("pow/sealmail_pow")
SOURCES = PACKAGE / "kernel"
MODULE = "_native" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so")
# The processor's own instructions are asked for function by function and chosen at run time, so
# the module runs on every machine of its architecture.
# Our functions stay our own: one whose name a library of the interpreter has too, as zlib has
# compress2, would otherwise be taken from there.
OPTIONS = ["-std=gnu11", "-O3", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread"]
OPTIONS += ["-fvisibility=hidden"]


class NativeHook(BuildHookInterface[Any]):
    """Put the compiled module into the wheel, or beside its sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, or warn why not and leave the package pure."""
        package = Path(self.root) / PACKAGE
        in_tree = package / MODULE
        built = Path(tempfile.mkdtemp(prefix="sealmail-build-")) / MODULE
        self._directory = built.parent
        problem = compile_module(sorted((Path(self.root) / SOURCES).glob("*.c")), built)
        if problem is not None:
            self.app.display_warning(f"the proof of work stays pure Python: {problem}")
            if version == "editable":
                in_tree.unlink(missing_ok=True)
            return
        if version == "editable":
            # A running program keeps the file that it has mapped; overwriting it would not do.
            beside = in_tree.with_suffix(".new")
            shutil.copy(built, beside)
            beside.replace(in_tree)
        else:
            build_data["force_include"][str(built)] = f"{PACKAGE.name}/{MODULE}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what only the build needed."""
        del version, build_data, artifact_path
        shutil.rmtree(self._directory)


def compile_module(sources: list[Path], target: Path) -> str | None:
    """Compile with the compiler of ``CC``, of Python or of the system; return what went wrong."""
    compiler = find_compiler()
    if compiler is None:
        return "there is no C compiler"
    command = [*compiler, *OPTIONS, f"-I{sysconfig.get_path('include')}"]
    command += [*shlex.split(os.environ.get("CFLAGS", "")), *map(str, sources), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or "the compiler failed"


def find_compiler() -> list[str] | None:
    """Return the words that start a compiler which is there."""
    # Who names a compiler means that one and no other.
    named = os.environ.get("CC")
    if named is not None:
        candidates = [named]
    else:
        # Python's own may carry a version that this machine has no longer.
        candidates = [sysconfig.get_config_var("CC") or "cc", "cc", "gcc", "clang"]
    for candidate in candidates:
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    return None
