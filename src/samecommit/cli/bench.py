"""``samecommit bench``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("names", nargs=-1, metavar="[MEASUREMENT]...")
@click.option(
    "--dsn", help="Measure on this database, in a scratch schema that is dropped; an embedded server otherwise."
)
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the rows to this file."
)
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw the courses over time into this folder."
)
@click.option("--scale", type=float, default=1.0, show_default=True, help="Share of the published size.")
@click.option("--yes", is_flag=True, help="Measure although other sessions work on the server.")
def bench(
    names: tuple[str, ...], dsn: str | None, json_path: Path | None, plots: Path | None, scale: float, *, yes: bool
) -> None:
    """Measure rates, latencies and costs, beside the floor in the same run.

    Without a name: drain, latency, late, enqueue, pinned, handlers, payloads, strangers, lanes. Also: storm, bystander, workers,
    pinned-drain, and depth, which fills 30 million rows; `all` runs everything.
    """
    from samecommit.bench.run import run

    run(names, dsn=dsn, json_path=json_path, plots=plots, factor=scale, may_disturb=yes)
