"""Doing one thing to many documents: the rows decide who works on what; the broker only hints.

A document's outcome is recorded in the transaction that changes the document, so whoever is killed
between two documents, or in the middle of one, has done nothing that the task does not know of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connection
from django.db.models import F, Q
from django.db.models.functions import Now

from access.errors import Internal, NotFound, VerbatimError, kind_and_place
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission
from knowledge.adapters.database import now
from knowledge.adapters.leases import kept_alive
from knowledge.core.errors import IngestBusy, RechunkBusy, TooManyDocuments
from knowledge.core.types import BulkAction, BulkOutcome, BulkState
from knowledge.core.wording import checked_reason
from knowledge.models import BulkItem, BulkTask, KnowledgeEvent

logger = logging.getLogger(__name__)

MOST_DOCUMENTS: Final = 10_000
LEASE: Final = timedelta(seconds=20)
HINT_AGAIN: Final = timedelta(seconds=20)
KEPT: Final = timedelta(days=30)
_TURN_SECONDS: Final = 20.0
"""After which a worker lets others have a turn."""
_MOST_ATTEMPTS: Final = 3
_PAUSE: Final = timedelta(seconds=5)
_HINTS_AT_ONCE: Final = 100
_SERVER_ERRORS: Final = 500
_DETAIL_LIMIT: Final = 500
# What commits as it goes cannot be in one transaction with its outcome, and can be done again.
_COMMITS_AS_IT_GOES: Final = frozenset({BulkAction.RECHUNK})

Act = Callable[[BulkTask, UUID, Principal], BulkOutcome]
"""Does the task's action to one document."""


class AttemptsExhausted(VerbatimError):
    """Every attempt ended without a word, as when the worker is killed."""

    code = "attempts_exhausted"
    status = 500


def needed_for(action: BulkAction) -> OperatorPermission:
    """What an operator needs to begin or to stop it."""
    return OperatorPermission.DELETE if action is BulkAction.DELETE else OperatorPermission.MANAGE


def begin(
    action: BulkAction,
    documents: Sequence[UUID],
    operator: Principal,
    *,
    reason: str,
    change: Mapping[str, Any],
) -> BulkTask:
    """A task for the workers. Raises `Forbidden`, `ReasonMissing`, `TooManyDocuments`."""
    operator.require_permission(needed_for(action))
    told = checked_reason(reason)
    chosen = list(dict.fromkeys(documents))
    if not 1 <= len(chosen) <= MOST_DOCUMENTS:
        raise TooManyDocuments(f"Choose 1 to {MOST_DOCUMENTS:,} documents.")
    with tenant_session(operator.tenant_id):
        at = now()
        task = BulkTask.objects.create(
            tenant_id=operator.tenant_id,
            username=operator.principal_id.removeprefix(Principal.OPERATOR_PREFIX),
            action=action,
            change={"reason": told, **change},
            total=len(chosen),
            next_turn_at=at,
            hinted_at=at,
            created_at=at,
        )
        BulkItem.objects.bulk_create(
            (
                BulkItem(
                    task=task, tenant_id=task.tenant_id, position=position, document_id=document
                )
                for position, document in enumerate(chosen)
            ),
            batch_size=1_000,
        )
        _record(KnowledgeEvent.BULK_BEGUN, task, operator)
    return task


def cancel(task_id: UUID, operator: Principal) -> BulkTask:
    """Lets what is under way end and begins nothing more. What is done stays done."""
    with tenant_session(operator.tenant_id):
        tasks = BulkTask.objects.filter(task_id=task_id)
        known = tasks.first()
        if known is None:
            raise NotFound
        operator.require_permission(needed_for(BulkAction(known.action)))
        asked = tasks.filter(
            state__in=(BulkState.QUEUED, BulkState.RUNNING), cancelled_at__isnull=True
        )
        if asked.update(cancelled_at=Now()):
            # One that nobody works on needs nobody to notice.
            tasks.filter(state=BulkState.QUEUED).update(
                state=BulkState.CANCELLED, finished_at=Now()
            )
            _record(KnowledgeEvent.BULK_CANCELLED, tasks.get(), operator)
        return tasks.get()


def run(task_id: UUID, act: Act) -> bool:
    """One turn at a task that is due. Whether there is more to do at once."""
    with operations_session():
        task = BulkTask.objects.claim(task_id, LEASE)
    if task is None:
        return False

    def renew() -> None:
        with tenant_session(task.tenant_id):
            BulkTask.objects.held(task).update(lease_until=Now() + LEASE)

    ends = time.monotonic() + _TURN_SECONDS
    try:
        with kept_alive(renew):
            while time.monotonic() < ends:
                item = _next(task)
                if item is None:
                    return False
                if not _settle(task, item, act):
                    _release(task, after=_PAUSE)
                    return False
    except (DatabaseError, InterfaceError, OSError) as error:
        logger.warning("bulk_task_cut_off", extra={**kind_and_place(error), **_named(task)})
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
        return False
    _release(task, after=timedelta(0))
    return True


def reconcile() -> list[UUID]:
    """Picks up what nobody works on, and forgets what ended long ago. Returns what to hint at."""
    with operations_session():
        BulkTask.objects.filter(finished_at__lt=Now() - KEPT).delete()
        unhinted = Q(hinted_at__isnull=True) | Q(hinted_at__lte=Now() - HINT_AGAIN)
        due = BulkTask.objects.due().filter(unhinted).order_by("number")
        ids = list(due.values_list("task_id", flat=True)[:_HINTS_AT_ONCE])
        BulkTask.objects.filter(task_id__in=ids).update(hinted_at=Now())
    return ids


def _next(task: BulkTask) -> BulkItem | None:
    """The next document, its attempt counted; `None` when the task is over, or another's."""
    with tenant_session(task.tenant_id):
        held = BulkTask.objects.held(task).select_for_update().first()
        if held is None:
            return None
        waiting = BulkItem.objects.filter(task=task, outcome="").order_by("position")
        item = None if held.cancelled_at else waiting.first()
        if item is None:
            BulkTask.objects.held(task).update(
                state=BulkState.CANCELLED if held.cancelled_at else BulkState.DONE,
                lease_until=None,
                finished_at=Now(),
            )
            return None
        item.attempts += 1
        item.save(update_fields=["attempts"])
    return item


def _settle(task: BulkTask, item: BulkItem, act: Act) -> bool:
    """Does it to one document and records the outcome; `False` when it is to be tried again."""
    # What the operator was allowed when they began it, and nothing else of what they may do.
    allowed = frozenset({OperatorPermission.VIEW, needed_for(BulkAction(task.action))})
    operator = Principal.for_operator(task.tenant_id, task.username, allowed)
    if item.attempts > _MOST_ATTEMPTS:
        _conclude(task, item, BulkOutcome.FAILED, AttemptsExhausted())
        return True
    try:
        if task.action in _COMMITS_AS_IT_GOES:
            _conclude(task, item, act(task, item.document_id, operator))
        else:
            with tenant_session(task.tenant_id):
                try:
                    outcome = act(task, item.document_id, operator)
                except VerbatimError as error:
                    # What the refusal recorded stays.
                    return _explain(task, item, error)
                _conclude(task, item, outcome)
    except VerbatimError as error:
        return _explain(task, item, error)
    except (DatabaseError, InterfaceError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - a bug of ours must not keep the others from their turn
        told = {**kind_and_place(error), **_named(task)}
        logger.error("bulk_item_crashed", extra=told)  # noqa: TRY400 - messages quote data
        _conclude(task, item, BulkOutcome.FAILED, Internal())
    return True


def _explain(task: BulkTask, item: BulkItem, error: VerbatimError) -> bool:
    busy = isinstance(error, IngestBusy | RechunkBusy)
    transient = busy or error.status >= _SERVER_ERRORS
    if transient and item.attempts < _MOST_ATTEMPTS:
        return False
    _conclude(task, item, BulkOutcome.FAILED if transient else BulkOutcome.REFUSED, error)
    return True


def _conclude(
    task: BulkTask, item: BulkItem, outcome: BulkOutcome, error: VerbatimError | None = None
) -> None:
    with tenant_session(task.tenant_id):
        # Two workers, of whom one was thought dead, count a document once.
        waiting = BulkItem.objects.filter(pk=item.pk, outcome="")
        if waiting.update(
            outcome=outcome,
            code=error.code if error else "",
            detail=error.detail[:_DETAIL_LIMIT] if error else "",
        ):
            BulkTask.objects.filter(pk=task.pk).update(**{outcome.value: F(outcome.value) + 1})


def _release(task: BulkTask, *, after: timedelta) -> None:
    with tenant_session(task.tenant_id):
        BulkTask.objects.held(task).update(
            state=BulkState.QUEUED,
            lease_until=None,
            next_turn_at=Now() + after,
            hinted_at=None,
        )


def _record(name: str, task: BulkTask, operator: Principal) -> None:
    KnowledgeEvent.objects.create(
        tenant_id=task.tenant_id,
        name=name,
        actor=operator.principal_id,
        surface=operator.surface,
        data={
            "task_id": str(task.task_id),
            "action": task.action,
            "documents": task.total,
            **task.change,
        },
    )


def _named(task: BulkTask) -> dict[str, str]:
    return {"task_id": str(task.task_id)}
