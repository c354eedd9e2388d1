"""The one date form of blocks and commands: ``2014-11-09T07:49:41Z``, a real moment in UTC."""

import re
from datetime import UTC, datetime

# Hour 24 is written by other standards, and read as the next day by some versions of Python.
_HOUR = r"(?:[01][0-9]|2[0-3])"
_DATE = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_HOUR}:[0-9]{{2}}:[0-9]{{2}}Z", re.ASCII)


def parse_date(text: str) -> datetime:
    """Read a date; a wrong form or an impossible day is a ``ValueError``."""
    if not _DATE.fullmatch(text):
        raise ValueError("not a date of the form YYYY-MM-DDTHH:MM:SSZ")
    return datetime.fromisoformat(text)


def format_date(moment: datetime) -> str:
    """Write ``moment``, which must carry a time zone, in the form of the protocol."""
    if moment.tzinfo is None:
        raise ValueError("a date without time zone")
    return moment.astimezone(UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
