"""API keys, and which operator may look after which tenant."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.utils import timezone

from access import audit
from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity

_PREFIX_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PREFIX_LENGTH = 8
_LAST_USE_RESOLUTION = timedelta(minutes=1)


def one_of(field: str, vocabulary: Iterable[str]) -> Q:
    """The condition of a CHECK that a column holds a word of a closed vocabulary."""
    return Q(**{f"{field}__in": [str(word) for word in vocabulary]})


def vocabulary_choices(vocabulary: Iterable[str]) -> list[tuple[str, str]]:
    return [(str(word), str(word)) for word in vocabulary]


class ApiKey(models.Model):
    """A key of one principal. Its secret is shown once and only its SHA-256 is kept.

    The secret has 256 random bits, so a plain hash cannot be guessed back and the look-up stays
    cheap; the prefix finds the row.
    """

    prefix = models.CharField(max_length=_PREFIX_LENGTH, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    name = models.CharField(max_length=200, blank=True)
    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    scopes = ArrayField(
        models.CharField(max_length=40, choices=vocabulary_choices(Scope)), default=list, blank=True
    )
    all_projects = models.BooleanField(default=False)
    projects = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    max_origin_trust = models.CharField(
        max_length=20,
        choices=vocabulary_choices(OriginTrust),
        default=OriginTrust.EXTERNAL_UNTRUSTED,
    )
    sensitivity_ceiling = models.CharField(
        max_length=20, choices=vocabulary_choices(Sensitivity), default=Sensitivity.INTERNAL
    )
    surface = models.CharField(max_length=50, default="api")
    # Instead of what holds for all keys; 0 is no limit.
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "API key"
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="api_key_tenant_named"),
            models.CheckConstraint(
                condition=one_of("max_origin_trust", OriginTrust), name="api_key_max_origin_trust"
            ),
            models.CheckConstraint(
                condition=one_of("sensitivity_ceiling", Sensitivity),
                name="api_key_sensitivity_ceiling",
            ),
            models.CheckConstraint(
                condition=Q(scopes__contained_by=[str(scope) for scope in Scope]),
                name="api_key_scopes",
            ),
        )

    def __str__(self) -> str:
        return f"vk_{self.prefix}_…"

    @classmethod
    def issue(
        cls,
        *,
        tenant_id: str,
        principal_id: str,
        scopes: Iterable[Scope] = (),
        projects: Iterable[str] | None = (),
        max_origin_trust: OriginTrust = OriginTrust.EXTERNAL_UNTRUSTED,
        sensitivity_ceiling: Sensitivity = Sensitivity.INTERNAL,
        surface: str = "api",
        name: str = "",
        expires_at: datetime | None = None,
        requests_per_minute: int | None = None,
        issued_by: str = "command",
    ) -> tuple[ApiKey, str]:
        """A new key and its plain text, which nobody can read again.

        `projects` are those it may name as current scope; `None` means all. `issued_by` is the
        actor of the event.
        """
        prefix = "".join(secrets.choice(_PREFIX_ALPHABET) for _ in range(_PREFIX_LENGTH))
        secret = secrets.token_urlsafe(32)
        with tenant_session(tenant_id):
            key = cls.objects.create(
                prefix=prefix,
                secret_sha256=_digest(secret),
                name=name,
                tenant_id=tenant_id,
                principal_id=principal_id,
                scopes=sorted(str(Scope(scope)) for scope in scopes),
                all_projects=projects is None,
                projects=sorted(projects or ()),
                max_origin_trust=max_origin_trust,
                sensitivity_ceiling=sensitivity_ceiling,
                surface=surface,
                expires_at=expires_at,
                requests_per_minute=requests_per_minute,
            )
            audit.record(audit.KEY_ISSUED, tenant_id, actor=issued_by, data=key.granted())
        return key, f"vk_{prefix}_{secret}"

    @classmethod
    def revoke(cls, keys: models.QuerySet[ApiKey], *, revoked_by: str) -> list[ApiKey]:
        """Ends those that are not revoked yet, in the caller's session. Returns which."""
        revoked = list(keys.filter(revoked_at__isnull=True).order_by("pk"))
        at = timezone.now()
        for key in revoked:
            if cls.objects.filter(pk=key.pk, revoked_at__isnull=True).update(revoked_at=at):
                audit.record(
                    audit.KEY_REVOKED, key.tenant_id, actor=revoked_by, data={"key": key.prefix}
                )
        return revoked

    @classmethod
    def authenticate(cls, presented: str) -> Principal | None:
        """The principal of a presented key, or `None` when it is unknown, expired or revoked."""
        marker, _, rest = presented.partition("_")
        prefix, _, secret = rest.partition("_")
        if marker != "vk" or len(prefix) != _PREFIX_LENGTH or not secret or "\x00" in presented:
            return None
        now = timezone.now()
        with operations_session():
            key = cls.objects.filter(prefix=prefix).first()
            known = key.secret_sha256 if key else _digest("")
            if not hmac.compare_digest(known, _digest(secret)) or key is None:
                return None
            if not key.usable_at(now):
                return None
            if key.last_used_at is None or now - key.last_used_at > _LAST_USE_RESOLUTION:
                cls.objects.filter(pk=key.pk).update(last_used_at=now)
        return key.principal()

    @classmethod
    def principal_of(cls, prefix: str) -> Principal | None:
        """The principal of a key that vouched for something earlier, while it is still usable."""
        with operations_session():
            key = cls.objects.filter(prefix=prefix).first()
        return key.principal() if key and key.usable_at(timezone.now()) else None

    def granted(self) -> dict[str, Any]:
        """What the key may do, as its event says it; nothing of its secret."""
        return {
            "key": self.prefix,
            "principal_id": self.principal_id,
            "scopes": list(self.scopes),
            "projects": None if self.all_projects else len(self.projects),
            "max_origin_trust": str(self.max_origin_trust),
            "sensitivity_ceiling": str(self.sensitivity_ceiling),
            "surface": self.surface,
            "expires_at": self.expires_at and self.expires_at.isoformat(),
            "requests_per_minute": self.requests_per_minute,
        }

    def usable_at(self, instant: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or instant < self.expires_at)

    def principal(self) -> Principal:
        return Principal(
            tenant_id=self.tenant_id,
            principal_id=self.principal_id,
            scopes=frozenset(Scope(scope) for scope in self.scopes),
            projects=None if self.all_projects else frozenset(self.projects),
            max_origin_trust=OriginTrust(self.max_origin_trust),
            sensitivity_ceiling=Sensitivity(self.sensitivity_ceiling),
            surface=self.surface,
            key_prefix=self.prefix,
            requests_per_minute=self.requests_per_minute,
        )


def viewing_only() -> list[str]:
    return [str(OperatorPermission.VIEW)]


class Operator(models.Model):
    """A user of the admin, the one tenant whose corpus they look after, and what they may do."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="operator"
    )
    tenant_id = models.CharField(max_length=100)
    permissions = ArrayField(
        models.CharField(max_length=10, choices=vocabulary_choices(OperatorPermission)),
        default=viewing_only,
    )

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="operator_tenant_named"),
            models.CheckConstraint(
                condition=Q(
                    permissions__contains=[str(OperatorPermission.VIEW)],
                    permissions__contained_by=[str(word) for word in OperatorPermission],
                ),
                name="operator_permissions",
            ),
        )

    def __str__(self) -> str:
        return f"{self.user} of {self.tenant_id}"


class IdempotentAnswer(models.Model):
    """What was answered to a write that named an `Idempotency-Key`, for as long as it is kept.

    `status` is empty while the request is carried out. `subjects` are the ids that the answer
    names; `body` goes when one of them is deleted.
    """

    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    key = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    # Tells whoever claimed the request from everybody else.
    claim = models.UUIDField(default=uuid.uuid4)
    claimed_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    status = models.PositiveSmallIntegerField(null=True)
    body = models.JSONField(null=True)
    subjects = ArrayField(models.UUIDField(), default=list)

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="answer_tenant_named"),
            models.UniqueConstraint(
                fields=("tenant_id", "principal_id", "key"), name="answer_once"
            ),
        )
        indexes = (
            models.Index(fields=["expires_at"], name="answer_due"),
            GinIndex(fields=["subjects"], name="answer_subjects"),
        )

    def __str__(self) -> str:
        return f"{self.principal_id}: {self.key}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
