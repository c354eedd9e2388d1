"""What a real browser asks of the network when it shows the HTML of a hostile mail: nothing."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sealmail_client.html_text import harmless_page

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
]

SENT_ON = '<meta http-equiv="refresh" content="0;url={0}">'
CALLS = [
    SENT_ON,
    '<svg><foreignObject><META\nhttp-equiv=refresh content="0;url={0}"></foreignObject></svg>',
    '<link rel="preconnect" href="{0}"><LINK/rel=preconnect href={0}>',
    "<div><template shadowrootmode=open><link\frel=preconnect href={0}></template></div>",
    '<iframe srcdoc="&lt;link rel=preconnect href={0}&gt;"></iframe><iframe src="{0}"></iframe>',
    '<base href="{0}"><img src="x"><script>location="{0}"</script><object data="{0}"></object>',
    "<style>@import url({0}); body{{background:url({0})}}</style><video poster='{0}'></video>",
]


@contextmanager
def heard() -> Iterator[tuple[str, list[str]]]:
    """Listen on loopback; yields the address, and the list of who has called."""
    callers: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    caller, address = listening.accept()
                    callers.append(str(address))
                    caller.close()

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", callers
        listening.shutdown(socket.SHUT_RDWR)


def show(page: str, directory: Path) -> None:
    """Show a page for some seconds of the browser's own time."""
    path = directory / "page.html"
    path.write_text(page)
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    options = (f"--user-data-dir={directory}/profile", "--virtual-time-budget=3000")
    subprocess.run([*command, *options, path.as_uri()], capture_output=True, timeout=60)


@pytest.mark.parametrize("html", CALLS)
def test_a_page_that_was_made_harmless_calls_nobody(html: str, tmp_path: Path) -> None:
    """Neither when it is loaded nor a while later."""
    with heard() as (address, callers):
        show(harmless_page(html.format(address)), tmp_path)
        assert callers == []


def test_a_page_that_was_not_would_have_been_heard(tmp_path: Path) -> None:
    """The listener hears what is to be heard."""
    with heard() as (address, callers):
        show(SENT_ON.format(address), tmp_path)
        assert callers
