"""What a cluster is sent when nothing is installed there: the pure Python of an audit, in one zip.

Compiled parts cannot travel in a zip: stamps are then weighed in Python, and signatures left out.
``make dist-spark`` also packs a whole environment, with which nothing is.
"""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

ARCHIVE: Final = "sealmail-spark.zip"
PROGRAM: Final = "sealmail-audit.py"
# What is ours, and the libraries without compiled parts that it needs.
_PACKAGES: Final = (
    *("sealmail_protocol", "sealmail_pow", "sealmail_verify", "sealmail_spark"),
    *("click", "idna"),
)
_START: Final = '''"""Starts an audit under spark-submit."""

from sealmail_spark.cli import main

main()
'''


def pack(target: Path) -> Path:
    """Write the zip into a directory and return its path."""
    target.mkdir(parents=True, exist_ok=True)
    archive = target / ARCHIVE
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in _PACKAGES:
            root = _directory(package)
            for source in sorted(root.rglob("*.py")):
                packed.write(source, source.relative_to(root.parent))
    return archive


def pack_program(target: Path) -> Path:
    """Write the file that spark-submit is given, and return its path."""
    program = target / PROGRAM
    program.write_text(_START, encoding="utf-8")
    return program


def _directory(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{package} is not installed", name=package)
    return Path(found.origin).parent


if __name__ == "__main__":
    for path in (pack(Path(sys.argv[1])), pack_program(Path(sys.argv[1]))):
        print(path)
