"""Documents, their versions, and the spaces in which they are visible."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, OuterRef, Q, Subquery, Value
from django.utils import timezone

from access.models import one_of, vocabulary_choices
from access.trust import Sensitivity
from artifacts.models import Artifact
from knowledge.core.scope import ReadScope
from knowledge.core.types import Authority, Visibility


class VisibilitySpaceQuerySet(models.QuerySet["VisibilitySpace"]):
    def visible_to(self, scope: ReadScope) -> VisibilitySpaceQuerySet:
        """The spaces that a caller may read: tenant, visibility and ceiling, in SQL.

        No project in the scope sees no project's documents; equality with NULL is never true.
        """
        visible = Q(visibility=Visibility.TENANT) | Q(
            visibility=Visibility.PRINCIPAL, principal_id=scope.principal_id
        )
        if scope.project is not None:
            visible |= Q(visibility=Visibility.PROJECT, project_scope=scope.project)
        if scope.whole_tenant:
            visible = Q()
        return self.filter(
            visible,
            tenant_id=scope.tenant_id,
            sensitivity__in=Sensitivity.up_to(scope.sensitivity_ceiling),
        )

    def visible_in_any_project(
        self, scope: ReadScope, projects: frozenset[str] | None
    ) -> VisibilitySpaceQuerySet:
        """What a caller may read on behalf of any project it may name; `None` means all."""
        of_project = Q(
            tenant_id=scope.tenant_id,
            visibility=Visibility.PROJECT,
            sensitivity__in=Sensitivity.up_to(scope.sensitivity_ceiling),
        )
        if projects is not None:
            of_project &= Q(project_scope__in=projects)
        return self.filter(of_project) | self.visible_to(scope)

    def note(self, space: int, *, language: str, analyzer: str) -> None:
        """Remembers that a space holds a document in a language, indexed by an analyser."""
        for field, value in (("languages", language), ("analyzers", analyzer)):
            appended = Func(
                F(field), Value(value, output_field=models.CharField()), function="array_append"
            )
            self.filter(pk=space).exclude(**{f"{field}__contains": [value]}).update(
                **{field: appended}
            )


class VisibilitySpace(models.Model):
    """One distinct (tenant, visibility, project or principal, sensitivity).

    Its number is what the index knows of who may see a chunk; numbers are never used again for
    another space.
    """

    id = models.AutoField(primary_key=True)
    tenant_id = models.CharField(max_length=100)
    visibility = models.CharField(max_length=10, choices=vocabulary_choices(Visibility))
    project_scope = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is "none"
    principal_id = models.CharField(max_length=200, null=True)  # noqa: DJ001 - NULL is "none"
    sensitivity = models.CharField(max_length=20, choices=vocabulary_choices(Sensitivity))
    # The languages of its documents, and the versions of the analyser that indexed them: a query
    # is read in those and no others.
    languages = ArrayField(models.CharField(max_length=50), default=list)
    analyzers = ArrayField(models.CharField(max_length=50), default=list)

    objects = VisibilitySpaceQuerySet.as_manager()

    class Meta:
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="space_tenant_named"),
            models.CheckConstraint(condition=one_of("visibility", Visibility), name="space_kind"),
            models.CheckConstraint(
                condition=one_of("sensitivity", Sensitivity), name="space_sensitivity"
            ),
            models.CheckConstraint(
                condition=Q(visibility=Visibility.PROJECT, project_scope__isnull=False)
                | (~Q(visibility=Visibility.PROJECT) & Q(project_scope__isnull=True)),
                name="space_project_scope_iff_project",
            ),
            models.CheckConstraint(
                condition=Q(visibility=Visibility.PRINCIPAL, principal_id__isnull=False)
                | (~Q(visibility=Visibility.PRINCIPAL) & Q(principal_id__isnull=True)),
                name="space_principal_iff_principal",
            ),
            models.UniqueConstraint(
                fields=("tenant_id", "visibility", "project_scope", "principal_id", "sensitivity"),
                nulls_distinct=False,
                name="space_distinct",
            ),
        )

    def __str__(self) -> str:
        of = self.project_scope or self.principal_id
        return f"{self.visibility}{f' {of}' if of else ''}, {self.sensitivity}"


def by_then(field: str, as_of: datetime | None) -> Q:
    """Whether something had happened by an instant, or has by now.

    What happens at an instant is to be seen at that instant: the one boundary of `as_of`.
    """
    return Q(**{f"{field}__isnull": False} if as_of is None else {f"{field}__lte": as_of})


class DocumentQuerySet(models.QuerySet["Document"]):
    def readable(self, scope: ReadScope) -> DocumentQuerySet:
        """The documents that a caller may see, in any version."""
        return self.filter(space__in=VisibilitySpace.objects.visible_to(scope))

    def with_current(self, as_of: datetime | None = None) -> DocumentQuerySet:
        """Those that have a version, or had one at an instant, with its number: `version`.

        Title and space are today's at any instant, and so is who may see it.
        """
        current = DocumentVersion.objects.current(as_of).filter(document=OuterRef("pk"))
        return (
            self.select_related("space")
            .annotate(version=Subquery(current.values("version")[:1]))
            .filter(version__isnull=False)
        )

    def with_versions(self, as_of: datetime | None = None) -> DocumentQuerySet:
        """With space, the versions that there are, or were by then (newest first), and sources."""
        versions = DocumentVersion.objects.select_related("source").order_by("-version")
        if as_of is not None:
            versions = versions.filter(by_then("ingested_at", as_of))
        return self.with_current(as_of).prefetch_related(
            models.Prefetch("versions", queryset=versions)
        )


class Document(models.Model):
    """What is one for all versions of a document."""

    document_id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant_id = models.CharField(max_length=100)
    ingested_by_principal_id = models.CharField(max_length=200)
    title = models.CharField(max_length=500)
    space = models.ForeignKey(VisibilitySpace, on_delete=models.PROTECT, related_name="documents")
    legal_hold = models.BooleanField(default=False)
    source_type = models.CharField(max_length=100, blank=True)
    source_id = models.CharField(max_length=2_000, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = DocumentQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.CheckConstraint(condition=~Q(tenant_id=""), name="document_tenant_named"),
            models.CheckConstraint(condition=~Q(title=""), name="document_titled"),
        )
        indexes = (
            # The admin's and the API's list, newest first.
            models.Index(
                fields=["tenant_id", "-created_at", "document_id"], name="document_newest"
            ),
        )

    def __str__(self) -> str:
        return self.title


class DocumentVersionQuerySet(models.QuerySet["DocumentVersion"]):
    def current(self, as_of: datetime | None = None) -> DocumentVersionQuerySet:
        """The newest of each document, now or at an instant."""
        return self.filter(by_then("ingested_at", as_of), ~by_then("superseded_at", as_of))


class DocumentVersion(models.Model):
    """One admitted text of a document. `superseded_at` is when the next one took over."""

    document = models.ForeignKey(Document, on_delete=models.PROTECT, related_name="versions")
    version = models.PositiveIntegerField()
    tenant_id = models.CharField(max_length=100)
    source = models.OneToOneField(Artifact, on_delete=models.PROTECT, related_name="+")
    source_version = models.CharField(max_length=500, blank=True)
    media_type = models.CharField(max_length=255)
    language = models.CharField(max_length=50)
    doc_date = models.DateField(null=True, blank=True)
    authority = models.CharField(max_length=20, choices=vocabulary_choices(Authority))
    page_count = models.PositiveIntegerField(null=True, blank=True)
    truncated = models.BooleanField(default=False)
    warnings = ArrayField(models.TextField(), default=list, blank=True)
    ingested_at = models.DateTimeField()
    superseded_at = models.DateTimeField(null=True, blank=True)

    objects = DocumentVersionQuerySet.as_manager()

    class Meta:
        ordering = ("document_id", "-version")
        constraints = (
            models.UniqueConstraint(fields=("document", "version"), name="version_of_document"),
            models.UniqueConstraint(
                fields=("document",),
                condition=Q(superseded_at__isnull=True),
                name="version_one_current",
            ),
            models.CheckConstraint(
                condition=one_of("authority", Authority), name="version_authority"
            ),
            models.CheckConstraint(
                condition=Q(superseded_at__isnull=True)
                | Q(superseded_at__gte=models.F("ingested_at")),
                name="version_superseded_later",
            ),
        )

    def __str__(self) -> str:
        return f"{self.document_id} v{self.version}"
