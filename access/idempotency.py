"""`Idempotency-Key`: a write that is sent twice happens once, and is answered twice.

After the IETF's draft (draft-ietf-httpapi-idempotency-key-header). Only what succeeded is kept,
for a refusal changed nothing and may well be asked again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec
from uuid import UUID

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Q
from django.db.models.functions import Now
from rest_framework.request import Request
from rest_framework.response import Response

from access.authentication import principal_of
from access.clock import now
from access.errors import Malformed, VerbatimError
from access.models import IdempotentAnswer
from access.principal import Principal
from access.tenancy import operations_session, tenant_session

P = ParamSpec("P")
Handler = Callable[Concatenate[Any, Request, P], Response]

HEADER: Final = "Idempotency-Key"
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
# After so long without an answer whoever was at work is taken for dead.
_LEASE: Final = timedelta(minutes=5)
_EXPIRED_AT_ONCE: Final = 500


class IdempotencyKeyReused(VerbatimError):
    """This idempotency key was used for another request; take a fresh one."""

    code = "idempotency_key_reused"
    status = 422


class RequestInProgress(VerbatimError):
    """The request with this idempotency key is being carried out; ask again shortly."""

    code = "request_in_progress"
    status = 409


class AnswerForgotten(VerbatimError):
    """The request was carried out, and what came of it has been deleted since."""

    code = "answer_forgotten"
    status = 410


ERRORS: Final = (IdempotencyKeyReused, RequestInProgress, AnswerForgotten)


def idempotent(method: Handler[P]) -> Handler[P]:
    """Lets callers of a view's method name an idempotency key."""

    @wraps(method)
    def handler(view: Any, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> Response:
        key = request.headers.get(HEADER)
        if key is None:
            return method(view, request, *args, **kwargs)
        if not _KEY.fullmatch(key):
            raise Malformed(f"{HEADER}: Give 1 to 200 printable ASCII characters without a space.")
        principal = principal_of(request)
        fingerprint = _fingerprint(request)
        kept = _claim(principal, key, fingerprint)
        if kept is not None:
            return Response(kept.body, status=kept.status, headers={"Idempotent-Replayed": "true"})
        try:
            response = method(view, request, *args, **kwargs)
        except BaseException:
            _release(principal, key)
            raise
        _keep(principal, key, response)
        return response

    handler.idempotent = True  # type: ignore[attr-defined]
    return handler


def forget(subjects: Iterable[UUID]) -> int:
    """Drops what was answered about things that are deleted, in the caller's bound session."""
    about = IdempotentAnswer.objects.filter(subjects__overlap=list(subjects), body__isnull=False)
    return about.update(body=None)


def expire_answers(*, dry_run: bool) -> int:
    """Drops the answers whose time is over. Returns how many."""
    due = IdempotentAnswer.objects.filter(expires_at__lte=Now())
    if dry_run:
        with operations_session():
            return due.count()
    dropped = 0
    while True:
        with operations_session():
            some = list(due.order_by("expires_at").values_list("pk", flat=True)[:_EXPIRED_AT_ONCE])
            IdempotentAnswer.objects.filter(pk__in=some).delete()
        dropped += len(some)
        if len(some) < _EXPIRED_AT_ONCE:
            return dropped


def _claim(principal: Principal, key: str, fingerprint: str) -> IdempotentAnswer | None:
    """`None` when the request is the caller's to carry out now, else what was answered to it."""
    named = _named(principal, key)
    with tenant_session(principal.tenant_id):
        rows = IdempotentAnswer.objects.filter(**named)
        fresh = IdempotentAnswer(
            **named,
            fingerprint=fingerprint,
            claimed_at=now(),
            expires_at=now() + timedelta(hours=settings.IDEMPOTENCY_HOURS),
        )
        rows.filter(Q(expires_at__lte=now())).delete()
        # Of two at once the later waits here for the earlier.
        IdempotentAnswer.objects.bulk_create([fresh], ignore_conflicts=True)
        row = rows.select_for_update().get()
        if row.claim == fresh.claim:
            return None
        if row.fingerprint != fingerprint:
            raise IdempotencyKeyReused
        if row.status is None:
            if row.claimed_at > now() - _LEASE:
                raise RequestInProgress
            rows.update(claimed_at=now(), claim=fresh.claim)
            return None
        if row.body is None:
            raise AnswerForgotten
        return row


def _release(principal: Principal, key: str) -> None:
    with tenant_session(principal.tenant_id):
        IdempotentAnswer.objects.filter(**_named(principal, key), status__isnull=True).delete()


def _keep(principal: Principal, key: str, response: Response) -> None:
    with tenant_session(principal.tenant_id):
        IdempotentAnswer.objects.filter(**_named(principal, key)).update(
            status=response.status_code,
            body=response.data,
            subjects=sorted(_ids(response.data)),
        )


def _named(principal: Principal, key: str) -> dict[str, str]:
    return {
        "tenant_id": principal.tenant_id,
        "principal_id": principal.principal_id,
        "key": key,
    }


def _ids(body: Any) -> set[UUID]:
    """The ids that an answer names: what it is about, should one of them be deleted."""
    found = set[UUID]()
    for name, value in body.items() if isinstance(body, dict) else ():
        if name.endswith("_id") and value is not None:
            try:
                found.add(UUID(str(value)))
            except ValueError:
                continue
    return found


def _fingerprint(request: Request) -> str:
    """Of the method, the address and the body, files by their bytes."""
    digest = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode())
    data = request.data
    if not hasattr(data, "lists"):
        digest.update(json.dumps(data, sort_keys=True, ensure_ascii=True).encode())
        return digest.hexdigest()
    for name, values in sorted(data.lists()):
        for value in values:
            if isinstance(value, UploadedFile):
                said = [name, value.name, value.content_type, value.charset, value.size]
                digest.update(json.dumps(said).encode())
                for block in value.chunks():
                    digest.update(block)
                value.seek(0)
            else:
                digest.update(json.dumps([name, value]).encode())
    return digest.hexdigest()
