"""HTML as plain text, for terminals: no link is followed, nothing is loaded.

The library's parser needs hours for a few hundred kilobytes that were written to hurt it, so
this one looks at every character once and understands no more than it must.
"""

import html as entities
import re
from contextlib import suppress

_BREAKS = frozenset(
    {"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote"}
)
_SILENT = {name: re.compile(f"</{name}", re.IGNORECASE) for name in ("script", "style", "title")}
# In front of all that the sender wrote: a policy can only be made stricter by later ones.
_RULE = """<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'">
<meta name="referrer" content="no-referrer">
<meta http-equiv="x-dns-prefetch-control" content="off">"""
# What no such rule keeps from other places: a page that sends its reader on, a connection that is
# made before anybody needs it, a page in the page that does either.
_CALLING = re.compile(
    r"<(?=(?:meta|link|base|i?frame|frameset|object|embed|portal)\b)", re.IGNORECASE
)
# No name we know is longer than this; an endless one is not read to its end.
_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,15})|<[!?]")


def text_of_html(html: str) -> str:
    """Return the words of ``html``, a line break where a block begins or ends."""
    lines = (" ".join(line.split()) for line in "".join(_words(html)).split("\n"))
    return "\n".join(lines).strip()


def harmless_page(html: str) -> str:
    """Return a page behind a rule by which browsers run and load nothing.

    It is as it came but for tags that the rule does not reach: they get a name that no browser
    knows. A browser reads as a tag only what has its name right behind the bracket.
    """
    return f"<!DOCTYPE html>\n{_RULE}\n{_CALLING.sub('<x-', html)}"


def _words(html: str) -> list[str]:
    """Return what a reader would see; what an open comment, script or tag hides is left out."""
    words: list[str] = []
    position = 0
    while (start := html.find("<", position)) >= 0:
        words.append(_shown(html[position:start]))
        tag = _TAG.match(html, start)
        if tag is None:
            words.append("<")
            position = start + 1
            continue
        name = (tag[1] or "").lower()
        end = _end_of(html, start, name)
        if end is None:
            return words
        if name in _BREAKS:
            words.append("\n")
        position = end
    words.append(_shown(html[position:]))
    return words


def _end_of(html: str, start: int, name: str) -> int | None:
    """Return where reading goes on behind the tag at ``start``; ``None``: nowhere."""
    if name in _SILENT and html[start + 1] != "/":
        closing = _SILENT[name].search(html, start)
        return None if closing is None else closing.start()
    mark = "-->" if html.startswith("<!--", start) else ">"
    found = html.find(mark, start)
    return None if found < 0 else found + len(mark)


def _shown(text: str) -> str:
    # A numeric entity that is longer than Python converts is shown as it stands.
    with suppress(ValueError):
        text = entities.unescape(text)
    return text.replace("\n", " ")
