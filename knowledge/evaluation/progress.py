"""What a person sees of a measurement: a bar while it runs, a table when it is done."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_WIDTH = 180

# Hands the items out: `track(items, what is being done, how many if known)`.
Track = Callable[[Iterable[Any], str, int | None], Iterable[Any]]


def untracked(items: Iterable[Any], _what: str, _total: int | None = None) -> Iterable[Any]:
    return items


@contextlib.contextmanager
def progress(*, disable: bool = False) -> Iterator[Track]:
    """`track(items, what, total)` hands the items out and moves a bar on standard error."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=disable or not console.is_terminal,
    ) as bars:

        def track(items: Iterable[Any], what: str, total: int | None = None) -> Iterable[Any]:
            return bars.track(items, description=what, total=total)

        yield track


def figures(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text: the first column to the left, figures to the right."""
    table = Table(title=title, title_justify="left", title_style="", box=SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=_WIDTH, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
