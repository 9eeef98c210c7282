"""Rows that describe bytes; the bytes themselves are in the blob store."""

from __future__ import annotations

import uuid
from enum import StrEnum

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from access.models import one_of, vocabulary_choices


class ArtifactOrigin(StrEnum):
    """What made the bytes."""

    SANDBOX_EXPORT = "SANDBOX_EXPORT"
    TOOL_OUTPUT = "TOOL_OUTPUT"
    MODEL_OUTPUT = "MODEL_OUTPUT"
    UPLOAD = "UPLOAD"
    ATTACHMENT = "ATTACHMENT"
    PROPOSAL = "PROPOSAL"
    TRAJECTORY_EXPORT = "TRAJECTORY_EXPORT"
    KNOWLEDGE_SOURCE = "KNOWLEDGE_SOURCE"


class ArtifactQuerySet(models.QuerySet["Artifact"]):
    def expired(self) -> ArtifactQuerySet:
        """Those whose time is up, by the database's clock."""
        return self.filter(expires_at__lte=Now())

    def stuck(self) -> ArtifactQuerySet:
        """Those that the sweeper could not remove when it last tried."""
        return self.filter(sweep_failed_at__isnull=False)


class Artifact(models.Model):
    """One blob and what is known of it. A blob belongs to exactly one artifact.

    `expires_at` drives the sweeper, the one place where bytes die; `None` means kept until
    somebody sets it. The file name is text to show, never a path.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    origin = models.CharField(max_length=20, choices=vocabulary_choices(ArtifactOrigin))
    media_type = models.CharField(max_length=255)
    filename = models.CharField(max_length=255)
    attribution = models.CharField(max_length=1_000, blank=True)
    sha256 = models.CharField(max_length=64)
    byte_size = models.BigIntegerField()
    storage_key = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    # What the sweeper met when it tried and failed: the name of the error, never its message.
    sweep_attempts = models.PositiveIntegerField(default=0, db_default=0)
    sweep_error = models.CharField(max_length=60, blank=True, default="", db_default="")
    sweep_failed_at = models.DateTimeField(null=True, blank=True)

    objects = ArtifactQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="artifact_tenant_named"),
            models.CheckConstraint(
                condition=one_of("origin", ArtifactOrigin), name="artifact_origin"
            ),
            models.CheckConstraint(condition=Q(byte_size__gte=0), name="artifact_byte_size"),
            models.CheckConstraint(
                condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="artifact_sha256"
            ),
        )
        indexes = (
            # The sweeper's question: what is due.
            models.Index(
                fields=["expires_at"],
                condition=Q(expires_at__isnull=False),
                name="artifact_due",
            ),
            # The admin's list, newest first.
            models.Index(fields=["tenant_id", "-created_at"], name="artifact_newest"),
            # What could not be swept: few, or somebody has to look.
            models.Index(
                fields=["sweep_failed_at"],
                condition=Q(sweep_failed_at__isnull=False),
                name="artifact_stuck",
            ),
        )

    def __str__(self) -> str:
        return f"{self.filename} ({self.id})"


class UploadState(StrEnum):
    """How far an upload in pieces is. `ASSEMBLING`: all pieces are here, the file is not yet."""

    RECEIVING = "receiving"
    ASSEMBLING = "assembling"
    COMPLETE = "complete"


class Upload(models.Model):
    """The journal of a file that arrives in pieces, under a request id of its principal's own.

    One that was read from the workspace, at `file_path`, came whole and has no pieces. Only an
    unfinished one expires. A complete one stays as the receipt: it names the artifact that
    was made, which lives and dies by its own time.
    """

    tenant_id = models.CharField(max_length=100)
    principal_id = models.CharField(max_length=200)
    request_id = models.UUIDField()
    # As they were told with the first piece; every later one must say the same.
    filename = models.CharField(max_length=255)
    media_type = models.CharField(max_length=255, blank=True)
    attribution = models.CharField(max_length=1_000, blank=True)
    file_path = models.TextField(blank=True, default="", db_default="")
    state = models.CharField(max_length=20, choices=vocabulary_choices(UploadState))
    received = models.BigIntegerField(default=0)
    artifact_id = models.UUIDField(null=True, blank=True)
    sha256 = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="upload_tenant_named"),
            models.CheckConstraint(condition=one_of("state", UploadState), name="upload_state"),
            models.CheckConstraint(condition=Q(received__gte=0), name="upload_received"),
            models.CheckConstraint(
                condition=Q(
                    state=UploadState.COMPLETE, artifact_id__isnull=False, expires_at__isnull=True
                )
                | (
                    ~Q(state=UploadState.COMPLETE)
                    & Q(artifact_id__isnull=True, expires_at__isnull=False)
                ),
                name="upload_expires_unless_complete",
            ),
            models.UniqueConstraint(
                fields=("tenant_id", "principal_id", "request_id"), name="upload_once"
            ),
        )
        indexes = (
            # What nobody came back for.
            models.Index(
                fields=["expires_at"], condition=Q(expires_at__isnull=False), name="upload_due"
            ),
        )

    def __str__(self) -> str:
        return f"{self.filename} ({self.request_id})"


class UploadPiece(models.Model):
    """One piece as it was accepted. Its bytes go when the file is whole, what is known of it stays.

    Kept in the row, so that a piece and its receipt are one transaction.
    """

    upload = models.ForeignKey(Upload, on_delete=models.CASCADE, related_name="pieces")
    tenant_id = models.CharField(max_length=100)
    offset = models.BigIntegerField()
    size = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    final = models.BooleanField()
    content = models.BinaryField(null=True)

    class Meta:
        ordering = ("upload_id", "offset")
        constraints = (
            models.UniqueConstraint(fields=("upload", "offset"), name="piece_offset"),
            models.CheckConstraint(condition=Q(offset__gte=0), name="piece_not_negative"),
            models.CheckConstraint(
                condition=Q(sha256__regex=r"^[0-9a-f]{64}$"), name="piece_sha256"
            ),
        )

    def __str__(self) -> str:
        return f"{self.size} at {self.offset}"


class UploadQuota(models.Model):
    """What one tenant's uploads may take up, where that is not what all others' may; 0: anything."""

    tenant_id = models.CharField(max_length=100, primary_key=True)
    quota_bytes = models.BigIntegerField()
    changed_at = models.DateTimeField(default=timezone.now)
    changed_by = models.CharField(max_length=200)

    class Meta:
        verbose_name = "upload quota"
        ordering = ("tenant_id",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="upload_quota_tenant_named"),
            models.CheckConstraint(condition=Q(quota_bytes__gte=0), name="upload_quota_bytes"),
        )

    def __str__(self) -> str:
        return f"Uploads of {self.tenant_id}"


class SourceDescriptor(models.Model):
    """What a retained original is, for good: `canonical` is JSON by RFC 8785, its SHA-256 the id.

    Nothing may change one, the database included. Knowing an id opens nothing.
    """

    descriptor_id = models.CharField(primary_key=True, max_length=64, editable=False)
    tenant_id = models.CharField(max_length=100)
    artifact = models.OneToOneField(
        Artifact, on_delete=models.CASCADE, related_name="descriptor", editable=False
    )
    canonical = models.TextField(editable=False)

    class Meta:
        ordering = ("descriptor_id",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="descriptor_tenant_named"),
            models.CheckConstraint(
                condition=Q(descriptor_id__regex=r"^[0-9a-f]{64}$"), name="descriptor_sha256"
            ),
        )

    def __str__(self) -> str:
        return self.descriptor_id


class SweepRun(models.Model):
    """One pass of the sweeper over all tenants, kept for a while as what is known of it.

    `finished_at` is empty while it runs, and for good when it was killed. `expired` counts the rows
    that let go of their bytes because of it, `error` names what kept it from looking for orphans.
    """

    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    by = models.CharField(max_length=200)
    expired = models.PositiveIntegerField(default=0)
    swept = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    orphans = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=60, blank=True)

    class Meta:
        verbose_name = "sweeper run"
        verbose_name_plural = "sweeper"
        ordering = ("-started_at", "-id")
        indexes = (models.Index(fields=["-started_at"], name="sweep_run_newest"),)

    def __str__(self) -> str:
        return f"{self.started_at:%Y-%m-%d %H:%M:%S}"
