"""Draws the series of a report, one picture each, with machine and versions as the caption."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from samecommit.bench.report import Report
from samecommit.errors import DependencyMissing


def draw(report: Report, folder: Path) -> list[Path]:
    """Write one SVG for each series and return their paths.

    Raises:
        DependencyMissing: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        msg = 'plots need matplotlib: pip install "samecommit[bench]"'
        raise DependencyMissing(msg) from error
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    caption = " · ".join(f"{name} {value}" for name, value in report.place.items())
    written: list[Path] = []
    for name, points in report.series.items():
        figure: Any
        axes: Any
        figure, axes = plt.subplots(figsize=(8, 3.2))
        axes.plot([x for x, _ in points], [y for _, y in points], linewidth=1.5)
        axes.set(title=name, xlabel="seconds", ylabel="per second")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        figure.text(0.01, 0.01, caption, fontsize=5, color="gray", wrap=True)
        figure.tight_layout(rect=(0, 0.05, 1, 1))
        path = folder / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".svg")
        figure.savefig(path)
        plt.close(figure)
        written.append(path)
    return written
