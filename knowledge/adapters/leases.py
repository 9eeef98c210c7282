"""Keeping a lease on a row for as long as the process that works on it lives."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from django.db import DatabaseError, InterfaceError, connection

BEAT_SECONDS: Final = 5.0


@contextlib.contextmanager
def kept_alive(renew: Callable[[], object]) -> Iterator[None]:
    """Calls `renew` from a thread, with a connection of its own, until the block is left."""
    done = threading.Event()

    def beat() -> None:
        try:
            while not done.wait(BEAT_SECONDS):
                # A database that is away comes back, or the lease runs out: both are in order.
                with contextlib.suppress(DatabaseError, InterfaceError):
                    connection.close_if_unusable_or_obsolete()
                    renew()
        finally:
            connection.close()

    beating = threading.Thread(target=beat, name="lease", daemon=True)
    beating.start()
    try:
        yield
    finally:
        done.set()
        beating.join()
