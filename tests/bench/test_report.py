import math
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from samecommit.bench.plots import draw
from samecommit.bench.report import Plot, Report, histogram, per_second, percentile

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("value", "better", "reached"),
    [(5.0, "lower", True), (5.1, "lower", False), (5.0, "higher", True), (4.9, "higher", False), (None, "lower", None)],
)
def test_a_row_passes_by_the_side_on_which_its_bar_lies(value: float | None, better: str, reached: bool | None) -> None:
    report = Report()
    report.add("group", "name", value, "ms", bar=5.0, better=better)
    assert report.as_dict()["rows"][0]["pass"] is reached


def test_a_row_without_a_bar_is_neither_passed_nor_failed() -> None:
    report = Report()
    report.add("group", "name", 1.0, "ms")
    assert report.as_dict()["rows"][0]["pass"] is None


def test_what_never_ended_fails_its_bar_and_is_null_in_json() -> None:
    report = Report()
    report.add("group", "name", math.inf, "ms", bar=5.0, better="lower")
    row = report.as_dict()["rows"][0]
    assert (row["value"], row["pass"]) == (None, False)


def test_a_percentile_counts_what_never_came() -> None:
    assert percentile([1.0] * 99 + [math.inf], 0.5) == 1.0
    assert percentile([1.0] * 98 + [math.inf] * 2, 0.99) == math.inf
    assert percentile([], 0.99) is None


def test_seconds_in_which_nothing_was_done_are_in_the_curve() -> None:
    assert per_second({"7": 3, "10": 1}) == [(0.0, 3.0), (1.0, 0.0), (2.0, 0.0), (3.0, 1.0)]
    assert per_second({}) == []


def test_a_histogram_counts_every_value_that_came_once() -> None:
    made = histogram([0.01, 0.1, 1.0, 1.0, 250.0, math.inf])
    assert sum(count for _, count in made.points) == 5
    assert made.points[0] == (0.1, 2.0)
    assert made.points[-1][0] >= 250.0 > made.points[-2][0]


def test_each_plot_is_a_picture_that_says_where_it_was_measured(tmp_path: Path) -> None:
    report = Report(place={"server_version": "18.6", "note": "<&>"})
    report.plots["Attempts a second, 1 & 2"] = Plot(points=[(0.0, 5.0), (1.0, 0.0), (2.0, 10.0)])
    report.plots["latency"] = histogram([0.5, 1.0, 30.0])
    report.plots["nothing"] = Plot(points=[])
    curve, bars = draw(report, tmp_path / "new")
    assert curve.name == "attempts-a-second-1-2.svg"
    drawn = ET.fromstring(curve.read_text())
    line = drawn.find(f"{SVG}polyline")
    assert line is not None and line.get("points", "").split()[2].split(",")[1] == "36.0"
    texts = [text.text or "" for text in drawn.iter(f"{SVG}text")]
    assert "Attempts a second, 1 & 2" in texts and any("server_version 18.6 · note <&>" in text for text in texts)
    heights = [
        float(bar.get("height", "0")) for bar in ET.fromstring(bars.read_text()).iter(f"{SVG}rect") if bar.get("x")
    ]
    assert sum(height > 0 for height in heights) == 3
