"""Changes of who may do what, told to whoever keeps the log: a layer above this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

KEY_ISSUED: Final = "access.key.issued"
KEY_REVOKED: Final = "access.key.revoked"
OPERATOR_ADDED: Final = "access.operator.added"
OPERATOR_CHANGED: Final = "access.operator.changed"
OPERATOR_REMOVED: Final = "access.operator.removed"
UPLOAD_QUOTA_CHANGED: Final = "access.upload_quota.changed"
ACCESS_EVENTS: Final = (
    KEY_ISSUED,
    KEY_REVOKED,
    OPERATOR_ADDED,
    OPERATOR_CHANGED,
    OPERATOR_REMOVED,
    UPLOAD_QUOTA_CHANGED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChange:
    """One change, in ids and words of closed vocabularies; never a secret."""

    name: str
    tenant_id: str
    actor: str
    data: Mapping[str, Any] = field(default_factory=dict)


Recorder = Callable[[AccessChange], None]
_recorders: list[Recorder] = []


def register_recorder(recorder: Recorder) -> None:
    """Lets a layer above write every change down, in the transaction that made it."""
    _recorders.append(recorder)


def record(name: str, tenant_id: str, *, actor: str, data: Mapping[str, Any]) -> None:
    """Tells of a change, in a session that may write rows of the tenant."""
    for recorder in _recorders:
        recorder(AccessChange(name=name, tenant_id=tenant_id, actor=actor, data=data))
