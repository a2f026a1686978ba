"""Draws the plots of a report as SVG, one picture each, with machine, versions and settings as the caption."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from samecommit.bench.report import Plot, Report

_WIDTH, _HEIGHT = 800, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 785, 36, 255
_CAPTION_LETTERS = 130


def draw(report: Report, folder: Path) -> list[Path]:
    """Write one SVG for each plot and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    caption = " · ".join(f"{name} {value}" for name, value in report.place.items())
    written: list[Path] = []
    for name, plot in report.plots.items():
        if plot.points:
            path = folder / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".svg")
            path.write_text(_picture(name, plot, caption), encoding="utf-8")
            written.append(path)
    return written


def _picture(name: str, plot: Plot, caption: str) -> str:
    is_bars = plot.kind == "bars"  # whose classes grow by a factor: their axis is logarithmic
    along = [math.log10(x) if is_bars else x for x, _ in plot.points]
    left, right = along[0], max(along[-1], along[0] + 1e-9)
    top = max((y for _, y in plot.points), default=0.0) or 1.0
    xs = [_LEFT + (x - left) / (right - left) * (_RIGHT - _LEFT) for x in along]
    ys = [_BOTTOM - y / top * (_BOTTOM - _TOP) for _, y in plot.points]
    parts = [_text(_LEFT, 22, name, size=14), *_grid(plot, left, right, top, is_log=is_bars)]
    parts.append(_bars(xs, ys) if is_bars else _curve(xs, ys))
    for line, begun in enumerate(range(0, len(caption), _CAPTION_LETTERS)):
        parts.append(_text(8, 308 + 12 * line, caption[begun : begun + _CAPTION_LETTERS], size=9, color="#777"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _curve(xs: Sequence[float], ys: Sequence[float]) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>'


def _bars(xs: Sequence[float], ys: Sequence[float]) -> str:
    width = max((xs[-1] - xs[0]) / max(len(xs) - 1, 1) - 1, 1)
    return "".join(
        f'<rect x="{max(x - width, _LEFT):.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BOTTOM - y:.1f}" fill="#1f6feb"/>'
        for x, y in zip(xs, ys, strict=True)
    )


def _grid(plot: Plot, left: float, right: float, top: float, *, is_log: bool) -> list[str]:
    lines: list[str] = []
    for n in range(5):
        y, x = _BOTTOM - n / 4 * (_BOTTOM - _TOP), _LEFT + n / 4 * (_RIGHT - _LEFT)
        at = left + n / 4 * (right - left)
        lines += [
            f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>',
            _text(_LEFT - 6, y + 4, _number(top * n / 4), anchor="end"),
            _text(x, _BOTTOM + 16, _number(10**at if is_log else at), anchor="middle"),
        ]
    lines.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 34, f"{plot.x}; upwards: {plot.y}", anchor="middle"))
    return lines


def _text(x: float, y: float, text: str, *, size: int = 11, color: str = "#333", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
