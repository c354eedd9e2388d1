"""How far the stores of an export were read: a small file beside its Parquet."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

EXPORT_MARK: Final = "sealmail-export.json"
EXPORTED_BLOCKS: Final = "blocks.parquet"
# 2: a column tells what a server keeps for the DHT.
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a store was read: its last row, by number and digest, and its time."""

    row: int
    digest: str
    seen: int


def is_export(directory: Path) -> bool:
    """Tell whether a directory is an export."""
    return (directory / EXPORT_MARK).is_file()


def read_mark(directory: Path) -> dict[str, Reached]:
    """Return how far the stores of an export were read; nothing where there is no export."""
    if not is_export(directory):
        return {}
    path = directory / EXPORT_MARK
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if told.get("version") != _VERSION:
        raise ValueError(f"{path}: an export of version {told.get('version')}, not {_VERSION}")
    return {name: Reached(**values) for name, values in told["stores"].items()}


def write_mark(directory: Path, reached: Mapping[str, Reached]) -> None:
    """Replace the mark as a whole, after the blocks: an export that was cut off is made again."""
    stores = {name: asdict(each) for name, each in sorted(reached.items())}
    partial = directory / f".{EXPORT_MARK}.partial"
    text = json.dumps({"version": _VERSION, "stores": stores}, indent=2)
    partial.write_text(text, encoding="utf-8")
    partial.replace(directory / EXPORT_MARK)
