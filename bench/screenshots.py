"""Renders a report as a desk, a phone and paper show it, to be looked at.

    screenshots.py DIRECTORY

The report is of an invented pair of stores, audited again after faults came, and of a ledger.
"""

import json
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from sealmail_protocol.dates import format_date
from sealmail_spark.generator.making import add_faults, make_pair

BLOCKS = 5000
FAULTS = 3
MAILS = 300
# Name, width and height in pixels of the screen.
SCREENS = (("desk", 1200, 6000), ("phone", 500, 8000))
SECONDS = 300


def audit(*arguments: str) -> None:
    """Run the program; findings are what it is for."""
    command = [sys.executable, "-m", "sealmail_spark", *arguments, "--fail-on", "fault:100000"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)


def ledger(now: datetime) -> str:
    """Return the lines of an invented ledger."""
    rng = Random(0)  # noqa: S311 - invented mail is no secret
    lines = []
    for number in range(MAILS):
        composed = now - timedelta(hours=rng.randrange(1, 200))
        sent = composed + timedelta(seconds=int(rng.expovariate(1 / 40)) + 1)
        read = sent + timedelta(minutes=int(rng.expovariate(1 / 300)))
        line = {
            "message": number,
            "recipient": rng.randbytes(20).hex().upper(),
            "state": "acknowledged" if read < now else "sent",
            "composed": format_date(composed),
            "sent": format_date(sent),
            "acknowledged": format_date(read) if read < now else None,
        }
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def render(page: Path, target: Path) -> None:
    """Have a browser draw a page on every screen and on paper."""
    chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    for name, width, height in SCREENS:
        picture = target / f"report-{name}.png"
        size = f"--window-size={width},{height}"
        command = [*chromium, size, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        print(picture)
    paper = target / "report.pdf"
    command = [*chromium, "--no-pdf-header-footer", f"--print-to-pdf={paper}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    print(paper)


def main(target: Path) -> None:
    """Make stores, audit them and render what the audits say."""
    target.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).replace(microsecond=0)
    with tempfile.TemporaryDirectory(prefix="sealmail-") as directory:
        place = Path(directory)
        make_pair(place / "stores", BLOCKS, faults=FAULTS, seed=0, now=now)
        (place / "ledger.jsonl").write_text(ledger(now), encoding="utf-8")
        history = ("--history", str(place / "history"))
        audit("store", str(place / "stores"), *history)
        # What went wrong since.
        add_faults(place / "stores" / "a", faults=FAULTS, now=now)
        page = target / "report.html"
        told = ("--replicas", "--ledger", str(place / "ledger.jsonl"))
        audit("report", str(page), str(place / "stores"), *history, *told)
    render(page.absolute(), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
