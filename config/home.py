"""The front page, and whether this process is alive and ready."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from artifacts.blobs import blob_store
from artifacts.errors import StorageUnavailable
from knowledge.ingest.jobs import oldest_waiting_seconds
from knowledge.wiring import REPLICA

logger = logging.getLogger(__name__)
_PATIENCE_SECONDS = 3


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    return render(request, "home.html", {"public_url": settings.VERBATIM_PUBLIC_URL})


@require_safe
@never_cache
def livez(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 - the shape of a view
    return JsonResponse({"status": "ok"})


@require_safe
@never_cache
def readyz(request: HttpRequest) -> JsonResponse:  # noqa: ARG001 - the shape of a view
    """Whether the database, the broker and the storage of blobs can be used."""
    checks = {name: _passes(name, check) for name, check in _CHECKS.items()}
    ready = all(checks.values())
    waiting = _waiting() if checks["database"] else None
    response = JsonResponse(
        {
            "status": "ready" if ready else "unavailable",
            "checks": {name: "ok" if passed else "unavailable" for name, passed in checks.items()},
            # Work that no worker has taken: it grows when none is there.
            **({} if waiting is None else {"oldest_waiting_seconds": waiting}),
            # Searches do without it, so its absence is told and no reason not to be ready.
            **({"replica": _replica()} if ready and REPLICA in settings.DATABASES else {}),
        },
        status=HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE,
    )
    if not ready:
        response["Retry-After"] = "5"
    return response


def _passes(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    except (DatabaseError, InterfaceError, redis.RedisError, StorageUnavailable) as error:
        logger.warning("not_ready", extra={"check": name, "error": type(error).__name__})
        return False
    return True


def _waiting() -> float | None:
    try:
        return oldest_waiting_seconds()
    except DatabaseError:  # it went away just now, or was never migrated
        return None


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _replica() -> dict[str, Any]:
    """Whether it answers, and how much of the primary's log it has not replayed yet."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_lsn()::text")
        (written,) = cursor.fetchone()
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute("SELECT %s::pg_lsn - pg_last_wal_replay_lsn()", [written])
            (behind,) = cursor.fetchone()
    except (DatabaseError, InterfaceError) as error:
        logger.warning("replica_failed", extra={"error": type(error).__name__})
        return {"status": "unavailable"}
    # NULL of a server that replays nothing: it is a primary itself.
    return {"status": "ok", "behind_bytes": max(0, int(behind or 0))}


def _broker() -> None:
    client = redis.Redis.from_url(
        settings.REDIS_URL,
        socket_timeout=_PATIENCE_SECONDS,
        socket_connect_timeout=_PATIENCE_SECONDS,
    )
    try:
        client.ping()
    finally:
        client.close()


def _storage() -> None:
    # A blob like any other, so that the sweeper finds it should we die in between.
    blobs = blob_store()
    blobs.delete(blobs.put(io.BytesIO(b"ready?")))


_CHECKS: dict[str, Callable[[], None]] = {
    "database": _database,
    "broker": _broker,
    "storage": _storage,
}
