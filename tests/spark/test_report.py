"""The page: what is drawn of many users and odd dates, and what strangers may write in it."""

import re
from datetime import UTC, datetime
from itertools import pairwise

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sealmail_spark.cli.running import figures_shown
from sealmail_spark.prices import PRICES, Market, price_rows
from sealmail_spark.report import Figure, Report
from sealmail_spark.results import Summary
from sealmail_spark.schemas import FIGURES

USERS = 7_000
MEASURES = ("total apportioned bytes of user", "total bytes of user", "key bytes of user")


def page(*figures: Figure, jobs: tuple[str, ...]) -> str:
    """Return the page that tells some figures."""
    report = Report(datetime.now(UTC), ("one",), Summary({}), (), figures, jobs=jobs)
    return report.html()


def test_many_users_displace_no_other_figure(spark: SparkSession) -> None:
    """Of users the page has those with most, and the sums of all; of prices every one."""
    users = spark.range(USERS).select(
        F.lit("references").alias("job"),
        F.lit("one").alias("store"),
        F.explode(F.array(*map(F.lit, MEASURES))).alias("measure"),
        F.format_string("%040X", "id").alias("group"),
        (F.col("id") + 1e9).alias("value"),
    )
    prices = [("pow", None, "core-seconds a thousand", str(bits), 1e-6) for bits in range(90)]
    shown = figures_shown(users.unionByName(spark.createDataFrame(prices, FIGURES)))
    assert sum(job == "pow" for job, *_ in shown) == len(prices)
    assert len(shown) == len(prices) + len(MEASURES) * 16
    html = page(*shown, jobs=("references",))
    rows = re.findall(r"<tr><td>(?:<code>)?(.*?)(?:</code>)?</td>.*?</tr>", html)
    assert rows == [f"{USERS - 1 - place:040X}" for place in range(15)] + ["all users"]
    total = USERS * 1e9 + USERS * (USERS - 1) / 2
    assert f'<td class="number" title="total">{total:,.0f}</td>' in html


def test_an_odd_date_leaves_the_plot_of_ages_whole() -> None:
    """What is older or further ahead than can be stands at either end."""
    ages = {-900_000: 1, -3: 2, 0: 10, 7: 20, 59: 3, 60: 4, 20_000: 5}
    figures = [("store", "age", f"data {day}", float(count)) for day, count in ages.items()]
    html = page(*figures, jobs=("store",))
    drawn = re.findall(r"<title>([^:<]+), data: (\d+) ", html)
    assert drawn == [
        *(("-2d or earlier", "3"), ("0d", "10"), ("7d", "20"), ("59d", "3")),
        ("60d and more", "9"),
    ]


def test_a_plot_is_readable_without_colour() -> None:
    """Each layer of bars has a pattern and each line dashes of its own, told by the legend."""
    layers = [("store", "level", f"{kind} 12", 3.0) for kind in "abcdef"]
    lines = [("delivery", "a day", f"{kind} 2026-03-01", 3.0) for kind in "abcdef"]
    html = page(*layers, *lines, jobs=("store", "delivery"))
    drawn = re.search(r"<figure>.*?Levels.*?</figure>(?=.*?Mail a day)", html)
    assert drawn
    filled = re.findall(r'<rect [^>]*fill="([^"]+)"', drawn[0])
    assert len(set(filled)) == len(layers)
    assert filled[: len(layers)] == filled[len(layers) :]
    known = re.findall(r'<pattern id="(\w+)".*?<path d="([^"]+)"', html)
    assert {f"url(#{name})" for name, _ in known} == set(filled) - {filled[0]}
    assert len({path for _, path in known}) == len(known) == 5
    _, of_lines = html.split("Mail a day", 1)
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', of_lines)
    assert len(set(dashes)) == len(lines)
    assert dashes[: len(lines)] == dashes[len(lines) :]


def test_prices_are_drawn_evenly_whatever_is_recommended() -> None:
    """A price between two of the others would bend curves that are straight."""
    market = Market(core_rate=77.5e6)
    assert market.recommended.bits not in PRICES
    html = page(*(("pow", *row) for row in price_rows(market)), jobs=("pow",))
    assert f"Recommended SenderProofOfWork: <b>bd,{market.recommended.bits},2</b>" in html
    cards = [int(bits) for bits in re.findall(r"<title>cards, (\d+): ", html)]
    assert cards == list(PRICES)


def test_labels_overlap_neither_each_other_nor_the_edge() -> None:
    """Long ones at the ends take no more than their neighbours' room."""
    ages = dict.fromkeys(range(-2, 61), 5.0)
    figures = [("store", "age", f"data {day}", count) for day, count in ages.items()]
    html = page(*figures, jobs=("store",))
    told = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">([^<]+)<', html)
    names = [label for _, label in told]
    assert (names[0], len(names) > 6) == ("-2d or earlier", True)
    spans = [(float(x) - 5 * len(label), float(x) + 5 * len(label)) for x, label in told]
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert spans[0][0] >= 0
    assert spans[-1][1] <= 640


HOSTILE = '"><script>\N{RIGHT-TO-LEFT OVERRIDE}'
HARMLESS = "&quot;&gt;&lt;script&gt;\N{REPLACEMENT CHARACTER}"


def test_words_of_strangers_stand_in_the_page_as_text() -> None:
    """Wherever they come from: they end no tag, begin none, and turn nothing around."""
    evidence = dict.fromkeys(("code", "store", "type", "key", "detail"), HOSTILE)
    figures: list[Figure] = [
        ("store", "level", f"{HOSTILE} 12", 3.0),
        ("store", "age", f"{HOSTILE} 2", 3.0),
        ("store", "signature", HOSTILE, 3.0),
        *(("references", measure, HOSTILE, 3.0) for measure in MEASURES),
        ("keys", "algorithm", HOSTILE, 3.0),
        ("keys", "network", HOSTILE, 3.0),
        ("pow", "paid", f"{HOSTILE} 12", 3.0),
        ("replicas", "missing", f"{HOSTILE} -> {HOSTILE}, data, 3 days", 3.0),
        ("delivery", "a day", f"{HOSTILE} 2026-03-01", 3.0),
    ]
    summary = Summary({("store", "fault", HOSTILE): 1})
    rows = [evidence | {"severity": "fault"}]
    jobs = ("store", "references", "keys", "pow", "replicas", "delivery")
    page = Report(datetime.now(UTC), (HOSTILE,), summary, rows, figures, jobs=jobs).html()
    assert "<script" not in page
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page
    assert page.count(HARMLESS) > len(figures) + len(evidence)
