"""Searches on a copy of the database that is always a little late, and never a stale answer."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from enum import StrEnum
from threading import Lock
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections

from access.tenancy import tenant_session
from knowledge.adapters import changes

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A replica that failed is left alone for so many seconds, in which no search waits for it.
LEFT_ALONE: Final = 10.0
# Who read stood in the way of what was to be replayed, and was cut off: the next one need not be.
_IN_THE_WAY: Final = "40001"


class Answered(StrEnum):
    """Who looked for the passages of a search, and why it was not the replica."""

    REPLICA = "replica"
    BEHIND = "behind"
    CANCELLED = "cancelled"
    AWAY = "away"


class Replica:
    """Looks at a replica for whoever is sure to find there what the primary would show.

    Whoever looks for passages asks the primary first which changes of the tenant there are. A
    replica that has them all has every change that was committed before the search began, the
    caller's own and everybody else's: nothing deleted comes back, nothing rescoped is still seen.
    One that lacks any is not asked.
    """

    def __init__(self, alias: str, *, left_alone: float = LEFT_ALONE) -> None:
        self._alias = alias
        self._left_alone = left_alone
        self._away_until = -math.inf
        self._lock = Lock()

    def look(self, tenant_id: str, look: Callable[[str], T]) -> tuple[T | None, Answered]:
        """What `look` found, given the alias of the replica in a session of the tenant there.

        `None` when the primary has to answer; raises nothing that is the replica's fault.
        """
        if not self._to_be_asked():
            return None, Answered.AWAY
        marks = changes.marks_of(tenant_id)
        try:
            with tenant_session(tenant_id, using=self._alias):
                if not changes.has_all(marks, using=self._alias):
                    return None, Answered.BEHIND
                found = look(self._alias)
        except (DatabaseError, InterfaceError) as error:
            return None, self._failed(error)
        self._away_until = -math.inf
        return found, Answered.REPLICA

    def _to_be_asked(self) -> bool:
        """Of those who come when it has been left alone long enough, one tries it for all."""
        with self._lock:
            now = time.monotonic()
            if now < self._away_until:
                return False
            if self._away_until > -math.inf:
                self._away_until = now + self._left_alone
            return True

    def _failed(self, error: Exception) -> Answered:
        state = getattr(error.__cause__, "sqlstate", None)
        logger.warning("replica_failed", extra={"error": type(error).__name__, "sqlstate": state})
        connections[self._alias].close()
        if state == _IN_THE_WAY:
            return Answered.CANCELLED
        self._away_until = time.monotonic() + self._left_alone
        return Answered.AWAY
