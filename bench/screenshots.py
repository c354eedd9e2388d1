"""Renders a report as a desk, a phone and paper show it, as PNG, to be looked at.

    screenshots.py DIRECTORY

The report is of an invented pair of stores, audited again after faults came, and of a ledger.
"""

import json
import re
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
# Name and width in pixels of the screen; a picture is as high as the page is there.
SCREENS = (("desk", 1200), ("phone", 390))
# A window of the browser is not narrower, so the page stands in a frame, and so wide a window
# shows it whole.
NARROWEST = 500
# The frame is as high as its page, and tells it in the title.
FRAME = """<!doctype html><title>?</title><style>body{{margin:0;background:#888}}
iframe{{display:block;border:0;width:{width}px;height:100px;background:#fff}}</style>
<iframe src="{page}"></iframe><script>
onload = () => {{
  const frame = document.querySelector("iframe");
  const height = frame.contentDocument.documentElement.scrollHeight;
  frame.style.height = height + "px";
  document.title = height;
}};
</script>
"""
DOTS_AN_INCH = 80
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
    for name, width in SCREENS:
        frame = target / f"{name}.html"
        frame.write_text(FRAME.format(width=width, page=page.as_uri()), encoding="utf-8")
        (height,) = re.findall(r"<title>(\d+)</title>", browse(frame, "--dump-dom"))
        picture = target / f"report-{name}.png"
        size = f"--window-size={max(width, NARROWEST)},{height}"
        browse(frame, size, f"--screenshot={picture}")
        frame.unlink()
        print(picture)
    paper = target / "report.pdf"
    # There may be fewer sheets than the last time.
    for sheet in target.glob("paper-*.png"):
        sheet.unlink()
    browse(page, "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    sheets = [*("pdftoppm", "-png", "-r", str(DOTS_AN_INCH)), str(paper), str(target / "paper")]
    subprocess.run(sheets, check=True, timeout=SECONDS)
    print(paper, *sorted(target.glob("paper-*.png")), sep="\n")


def browse(page: Path, *options: str) -> str:
    """Have a browser with a profile of its own open a page; return what it prints."""
    with tempfile.TemporaryDirectory(prefix="sealmail-") as profile:
        settings = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
        # Only with this may a file look at the height of another.
        allowed = ("--allow-file-access-from-files", f"--user-data-dir={profile}")
        command = ["chromium", *settings, *allowed, *options, page.as_uri()]
        done = subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        return done.stdout.decode()


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
    render(page, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
