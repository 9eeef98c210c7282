"""How far a command is that goes through many things: bars on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from knowledge.core.types import IngestProgress

T = TypeVar("T")


def _bars(*, quiet: bool) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


class KindsProgress:
    """A bar for each kind of thing that a command goes through."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress = _bars(quiet=quiet)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> KindsProgress:
        self._progress.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._progress.stop()

    def on_kind(self, kind: str, done: int, total: int) -> None:
        if kind not in self._tasks:
            self._tasks[kind] = self._progress.add_task(f"{kind.capitalize()}s")
        self._progress.update(self._tasks[kind], completed=done, total=total)


class DocumentsProgress:
    """A bar for the documents, and one for the chunks of a document that takes several batches."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress = _bars(quiet=quiet)
        self._chunks = self._progress.add_task("Chunks", visible=False)

    def track(self, documents: Iterable[T], description: str) -> Iterator[T]:
        with self._progress:
            for document in self._progress.track(documents, description=description):
                self._progress.update(self._chunks, visible=False)
                yield document

    def on_chunks(self, told: IngestProgress) -> None:
        self._progress.update(
            self._chunks, completed=told.embedded, total=told.total, visible=told.batches > 1
        )


class StagesProgress(AbstractContextManager["StagesProgress"]):
    """One bar at a time for work that has several stages, each with its own measure."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._progress.add_task("")

    def __enter__(self) -> StagesProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def on_progress(self, stage: str, done: int, total: int) -> None:
        self._progress.update(self._task, description=stage, completed=done, total=total or None)
