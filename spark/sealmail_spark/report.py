"""The report: everything a run found, as one HTML page that needs nothing beside itself.

Words of strangers (user ids, reasons) are in it: every text is escaped, what could turn it around
is replaced, and nothing is executed.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sealmail_protocol.dates import format_date
from sealmail_spark.codes import CODES, SEVERITIES
from sealmail_spark.history import Drift
from sealmail_spark.prices import PRICES
from sealmail_spark.report_style import STYLE
from sealmail_spark.results import Summary, readable
from sealmail_spark.svg import PATTERNS, Series, bars, lines

_TYPES: Final = (
    *("key-announcement", "address-claim", "message-announcement"),
    *("acknowledgment", "data"),
)
_JOBS: Final = {
    "store": "Blocks",
    "references": "What holds on to what",
    "replicas": "Partners",
    "keys": "Keys and addresses",
    "pow": "The price of spam",
    "delivery": "Delivery",
}
MOST_USERS: Final = 15
# By what users are ranked, and the group in which each measure of users is summed up.
RANKING_OF_USERS: Final = "total apportioned bytes of user"
ALL_USERS: Final = "all users"
# Columns of the table of users and what is summed up in them; more have no room on a phone.
_BYTES_OF_USER: Final = {
    "data": ("bytes of user",),
    "mail, key and claims": (
        *("announcement bytes of user", "key bytes of user", "claim bytes of user"),
    ),
    "total": ("total bytes of user",),
    "apportioned": ("total apportioned bytes of user",),
}
# What ``signature`` of facts can say.
_OUTCOMES: Final = ("good", "bad", "no key", "undecided", "left out")

# Days: nothing is kept for longer but revocations, and two ahead is more than any server takes.
_AHEAD, _AGED = -2, 60

# job, measure, group, value; summed over stores
Figure = tuple[str, str, str, float]


@dataclass(frozen=True, slots=True)
class Report:
    """What a page tells."""

    made: datetime
    stores: tuple[str, ...]
    summary: Summary
    findings: Sequence[Mapping[str, Any]]
    figures: Sequence[Figure]
    drift: Sequence[Drift] = field(default=())
    jobs: tuple[str, ...] = ()

    def html(self) -> str:
        """Return the page."""
        sections = "".join(self._section(job) for job in _JOBS if job in self.jobs)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
            " style-src 'unsafe-inline'\">"
            f"<title>Sealmail audit</title><style>{STYLE}</style></head><body>{PATTERNS}"
            f"{self._head()}{self._kinds()}{self._drift()}{sections}{self._evidence()}"
            "</body></html>"
        )

    def _head(self) -> str:
        counts = self.summary.by_severity
        tiles = "".join(
            f'<div class="tile {severity}"><b>{counts[severity]:,}</b> {_plural(severity)}</div>'
            for severity in SEVERITIES
        )
        blocks = sum(value for job, measure, _, value in self.figures if (job, measure) == _BLOCKS)
        told = f"{blocks:,.0f} blocks in {len(self.stores)} stores" if blocks else ""
        named = ", ".join(self.stores[:8]) + (" …" if len(self.stores) > 8 else "")
        return (
            f"<header><h1>Sealmail audit</h1><p>{format_date(self.made)}"
            f"{' · ' if told else ''}{told}<br>{escape(named)}</p>"
            f'<div class="tiles">{tiles}</div></header>'
        )

    def _kinds(self) -> str:
        if not self.summary.by_code:
            return '<section><h2>Findings</h2><p class="good">Nothing is wrong.</p></section>'
        rows = "".join(
            f'<tr><td class="{severity}">{severity}</td><td>{escape(code)}<br>'
            f'<small>{escape(_meaning(code))}</small></td><td class="number">{count:,}</td></tr>'
            for (_, severity, code), count in self.summary.by_code.items()
        )
        return (
            "<section><h2>Findings</h2><table><thead><tr><th>severity</th><th>code</th>"
            f'<th class="number">count</th></tr></thead><tbody>{rows}</tbody></table></section>'
        )

    def _drift(self) -> str:
        drawn = "".join(map(_drifting, self.drift))
        return f"<section><h2>Drift</h2>{drawn}</section>" if drawn else ""

    def _section(self, job: str) -> str:
        drawn = "".join(draw(self) for draw in _PLOTS.get(job, ()))
        if not drawn:
            return ""
        return f'<section id="{job}"><h2>{_JOBS[job]}</h2>{drawn}</section>'

    def _evidence(self) -> str:
        if not self.findings:
            return ""
        total = sum(self.summary.by_code.values())
        rows = "".join(
            f'<tr><td class="{row["severity"]}">{escape(str(row["code"]))}</td>'
            f"<td>{escape(str(row['store'] or ''))}<br>{escape(str(row['type'] or ''))}</td>"
            f"<td><code>{escape(str(row['key'] or ''))}</code><br>"
            f"{escape(str(row['detail']))}</td></tr>"
            for row in self.findings
        )
        told = (
            f"The worst {len(self.findings)} of {total:,}." if total > len(self.findings) else ""
        )
        return (
            f"<section><h2>Evidence</h2><p>{told}</p><table class='evidence'><thead><tr>"
            f"<th>code</th><th>where</th><th>evidence</th></tr></thead><tbody>{rows}</tbody>"
            "</table></section>"
        )

    def of(self, job: str, measure: str) -> dict[str, float]:
        """Return the figures of a measure, summed over stores, by group."""
        found: dict[str, float] = {}
        for each_job, each, group, value in self.figures:
            if (each_job, each) == (job, measure):
                told = readable(group)
                found[told] = found.get(told, 0) + value
        return found


def escape(text: str) -> str:
    """Return text of strangers as it can stand in the page."""
    return html.escape(readable(text))


_BLOCKS: Final = ("store", "blocks")


def _drifting(drift: Drift) -> str:
    """Draw what can be compared: two runs that were asked the same, or more."""
    runs = sorted({run for run, _, _ in drift.points})
    if len(runs) < 2:
        return ""
    labels = [f"{run[4:6]}-{run[6:8]} {run[9:11]}:{run[11:13]}" for run in runs]
    known = {(run, name): value for run, name, value in drift.points}
    if drift.counted:
        # Of what was not found there were none.
        known = {(run, name): 0.0 for run in runs for name in SEVERITIES} | known
    names = [name for name in (*SEVERITIES, *_TYPES) if any(key[1] == name for key in known)]
    series = [Series(name, tuple(known.get((run, name)) for run in runs)) for name in names]
    return lines(f"{_JOBS[drift.job]}: {drift.title}", labels, series, drift.unit)


def _plural(severity: str) -> str:
    return f"{severity}s"


def _meaning(code: str) -> str:
    return CODES[code].meaning if code in CODES else ""


def _typed(found: Mapping[str, float]) -> dict[str, dict[int, float]]:
    """Split groups of a type and a number."""
    split: dict[str, dict[int, float]] = {}
    for group, value in found.items():
        kind, _, number = group.rpartition(" ")
        split.setdefault(kind, {})[int(number)] = value
    return split


def _layers(split: Mapping[str, Mapping[int, float]], places: Sequence[int]) -> list[Series]:
    order = [*(kind for kind in _TYPES if kind in split), *sorted(set(split) - set(_TYPES))]
    return [Series(kind, tuple(split[kind].get(place) for place in places)) for kind in order]


def _stacked(report: Report, job: str, measure: str, title: str, unit: str) -> str:
    split = _typed(report.of(job, measure))
    found = {number for layer in split.values() for number in layer}
    if not found:
        return ""
    places = range(min(found), min(max(found), min(found) + 80) + 1)
    return bars(title, [str(place) for place in places], _layers(split, places), unit)


def _ages(report: Report) -> str:
    """Draw ages by days; what is odd stands at either end, or it would push all else aside."""
    split: dict[str, dict[int, float]] = {}
    for kind, layer in _typed(report.of("store", "age")).items():
        within = split.setdefault(kind, {})
        for day, blocks in layer.items():
            place = max(_AHEAD, min(day, _AGED))
            within[place] = within.get(place, 0) + blocks
    found = {day for layer in split.values() for day in layer}
    if not found:
        return ""
    places = range(min(found), max(found) + 1)
    ends = {_AHEAD: f"{_AHEAD}d or earlier", _AGED: f"{_AGED}d and more"}
    labels = [ends.get(place, f"{place}d") for place in places]
    return bars("Ages", labels, _layers(split, places), "blocks")


def _sizes(report: Report) -> str:
    found = {int(group): value for group, value in report.of("store", "size").items()}
    if not found:
        return ""
    powers = range(min(found).bit_length() - 1, max(found).bit_length())
    values = tuple(found.get(1 << power) for power in powers)
    labels = [_bytes(1 << power) for power in powers]
    return bars("Sizes of data blocks, up to", labels, [Series("data", values)], "blocks")


def _bytes(size: int) -> str:
    for unit in ("B", "K", "M"):
        if size < 1024:
            return f"{size}{unit}"
        size //= 1024
    return f"{size}G"


def _signatures(report: Report) -> str:
    """Tell what became of signatures, and what a server holds for others."""
    found: dict[str, float] = {}
    for measure in ("signature", "DHT signature"):
        for group, value in report.of("store", measure).items():
            outcome = next((each for each in _OUTCOMES if group.endswith(f" {each}")), group)
            found[outcome] = found.get(outcome, 0) + value
    told = [f"{found[each]:,.0f} {each}" for each in _OUTCOMES if each in found]
    sentences = [f"Signatures: {', '.join(told)}."] if told else []
    held = report.of("store", "held for other servers")
    if held:
        sentences.append(
            f"Held to be delivered to other servers, and not examined: {held['blocks']:,.0f}"
            f" blocks of {held['bytes']:,.0f} bytes."
        )
    return "".join(f"<p>{line}</p>" for line in sentences)


def _unread(report: Report) -> str:
    count = sum(report.of("keys", "keys not read").values())
    if not count:
        return ""
    return f"<p>{count:,.0f} keys were not read: expired and weak ones among them are unknown.</p>"


def _counted(report: Report, job: str, measure: str, title: str, unit: str) -> str:
    found = sorted(report.of(job, measure).items(), key=lambda pair: (-pair[1], pair[0]))
    if not found:
        return ""
    labels = [name for name, _ in found]
    return bars(title, labels, [Series(title, tuple(value for _, value in found))], unit)


def _prices(report: Report) -> str:
    measures = {
        measure: report.of("pow", measure)
        for job, measure, _, _ in report.figures
        if job == "pow" and measure.startswith("dollars for")
    }
    if not measures:
        return ""
    # The recommended price may lie between two of these, where it would bend the curves.
    known = {int(group) for found in measures.values() for group in found}
    bits = sorted(known.intersection(PRICES))
    series = [
        Series(name.rpartition(", ")[2], tuple(found.get(str(each)) for each in bits))
        for name, found in measures.items()
    ]
    many = next(iter(measures)).split()[2]
    labels = [str(each) for each in bits]
    spam = lines(
        f"What {int(many):,} mails cost by price, in bits", labels, series, "dollars", log=True
    )
    honest = report.of("pow", "core-seconds a thousand")
    mean = tuple(honest[str(each)] / 1000 if str(each) in honest else None for each in bits)
    slow = report.of("pow", "core-seconds a mail, in 9 of 10")
    at_most = tuple(slow.get(str(each)) for each in bits)
    one = lines(
        "What one mail costs an honest sender",
        labels,
        [Series("mean", mean), Series("9 of 10 at most", at_most)],
        "core-seconds",
        log=True,
    )
    best = report.of("pow", "recommended").get("SenderProofOfWork")
    told = f'<p class="good">Recommended SenderProofOfWork: <b>bd,{best:.0f},2</b>.</p>'
    return (told if best else "") + spam + one


def _paid(report: Report) -> str:
    return _stacked(report, "pow", "paid", "Levels paid by mail", "mails")


def _work(report: Report) -> str:
    mails = report.of("pow", "mails")
    if not mails:
        return ""
    hashes = sum(report.of("pow", "hashes expected").values())
    rate = report.of("pow", "hashes a second").get("core", 0)
    total = sum(mails.values())
    share = mails.get("with token", 0) / total
    spent = f", {hashes / rate:,.0f} core-seconds" if rate else ""
    return (
        f"<p>{total:,.0f} mails; {share:.0%} bear a token. Their stamps are evidence of about"
        f" {hashes:,.3g} hashes{spent}.</p>"
    )


def _users(report: Report) -> str:
    shares = report.of("references", RANKING_OF_USERS)
    if not shares:
        return ""
    columns = [
        [report.of("references", measure) for measure in measures]
        for measures in _BYTES_OF_USER.values()
    ]
    users = [user for user in shares if user != ALL_USERS]
    most = sorted(users, key=lambda user: -shares[user])[:MOST_USERS]
    rows = "".join(
        _row(f"<code>{escape(user)}</code>", [_sum_of(found, [user]) for found in columns])
        for user in most
    ) + _row(ALL_USERS, [_sum_of(found, [ALL_USERS]) for found in columns])
    heads = "".join(f"<th class='number'>{title}</th>" for title in _BYTES_OF_USER)
    saved = report.of("references", "single-copy savings").get("bytes", 0)
    orphans = report.of("references", "orphans").get("bytes", 0)
    return (
        f"<p>Storing once saves {saved:,.0f} bytes. Data that nobody names: {orphans:,.0f} bytes."
        " Apportioned is the total with data shared among its recipients."
        f"</p><table class='users'><thead><tr><th>user</th>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _sum_of(found: Sequence[Mapping[str, float]], users: Iterable[str]) -> float:
    return sum(each.get(user, 0) for user in users for each in found)


def _row(name: str, values: Sequence[float]) -> str:
    titled = zip(_BYTES_OF_USER, values, strict=True)
    numbers = "".join(
        f'<td class="number" title="{title}">{value:,.0f}</td>' for title, value in titled
    )
    return f"<tr><td>{name}</td>{numbers}</tr>"


def _missing(report: Report) -> str:
    alike = report.of("replicas", "alike")
    missing = report.of("replicas", "missing")
    if not alike and not missing:
        return ""
    by_way: dict[str, float] = {}
    for group, count in missing.items():
        way = group.rpartition(", ")[0]
        by_way[way] = by_way.get(way, 0) + count
    rows = "".join(
        f'<tr><td>{escape(way)}</td><td class="number">{count:,.0f}</td></tr>'
        for way, count in sorted(by_way.items())
    )
    table = (
        "<table><thead><tr><th>what has not gone which way</th><th class='number'>blocks</th>"
        f"</tr></thead><tbody>{rows}</tbody></table>"
    )
    return f"<p>{sum(alike.values()):,.0f} entries are alike.</p>{table if rows else ''}"


def _delivery(report: Report) -> str:
    rates = {
        step: report.of("delivery", f"{step} rate").get("of all")
        for step in ("delivery", "acknowledgment")
    }
    told = "; ".join(f"{step}: {rate:.1%}" for step, rate in rates.items() if rate is not None)
    days = report.of("delivery", "a day")
    split: dict[str, dict[str, float]] = {}
    for group, value in days.items():
        kind, _, day = group.rpartition(" ")
        split.setdefault(kind, {})[day] = value
    names = sorted({day for layer in split.values() for day in layer})
    layers = [
        Series(kind, tuple(layer.get(day) for day in names)) for kind, layer in split.items()
    ]
    short = [day[5:] for day in names]
    drawn = lines("Mail a day", short, layers, "blocks") if names else ""
    return (f"<p>Rates by the ledger: {told}.</p>" if told else "") + drawn


_PLOTS: Final = {
    "store": (
        _signatures,
        lambda report: _stacked(report, "store", "level", "Levels of stamps", "blocks"),
        _ages,
        _sizes,
    ),
    "references": (_users,),
    "replicas": (_missing,),
    "keys": (
        _unread,
        lambda report: _counted(report, "keys", "algorithm", "Algorithms", "keys"),
        lambda report: _counted(report, "keys", "network", "Networks of servers", "keys"),
    ),
    "pow": (_work, _paid, _prices),
    "delivery": (_delivery,),
}
