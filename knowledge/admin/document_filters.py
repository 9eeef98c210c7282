"""How the list of documents is narrowed. Each costs a look at the rows that the list looks at."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from django.db.models import Exists, F, OuterRef, Q
from django.utils.functional import cached_property

from access.admin_filters import ChoiceFilter, DayFilter, WordFilter
from access.trust import Sensitivity
from knowledge.adapters.extractors.media_types import DOCX
from knowledge.adapters.language import LANGUAGES
from knowledge.core.types import Authority, ChunkSetState, Visibility
from knowledge.models import ChunkSet, DocumentVersion, UnfinishedVersion, VisibilitySpace

_SUGGESTED_PROJECTS: Final = 50
_KINDS = {
    "markdown": ("Markdown", Q(media_type__startswith="text/markdown")),
    "plain": ("plain text", Q(media_type__startswith="text/plain")),
    "html": ("HTML", Q(media_type__startswith="text/html")),
    "json": ("JSON", Q(media_type__startswith="application/json")),
    "pdf": ("PDF", Q(media_type__startswith="application/pdf")),
    "word": ("Word", Q(media_type__startswith=DOCX)),
}


def _current(*conditions: Q, **given: Any) -> Q:
    """Documents whose current version is so."""
    return Q(
        Exists(
            DocumentVersion.objects.filter(
                *conditions, document=OuterRef("pk"), superseded_at__isnull=True, **given
            )
        )
    )


def _live(*conditions: Q) -> Q:
    """Documents whose live chunk set is so."""
    return Q(
        Exists(
            ChunkSet.objects.filter(
                *conditions,
                version__document=OuterRef("pk"),
                version__superseded_at__isnull=True,
                state=ChunkSetState.LIVE,
            )
        )
    )


_HELD_BACK = F("rejected_count") + F("quarantined_count")


def _another_kind() -> Q:
    known = Q()
    for _, condition in _KINDS.values():
        known |= condition
    return _current(~known)


class VisibilityFilter(ChoiceFilter):
    title = "visible to"
    names = ("visibility",)
    conditions: ClassVar = {
        Visibility.TENANT: ("the tenant", Q(space__visibility=Visibility.TENANT)),
        Visibility.PROJECT: ("a project", Q(space__visibility=Visibility.PROJECT)),
        Visibility.PRINCIPAL: ("who admitted it", Q(space__visibility=Visibility.PRINCIPAL)),
    }


class ProjectFilter(WordFilter):
    title = "project"
    names = ("project",)
    field = "space__project_scope"

    @cached_property
    def suggested(self) -> list[str | None]:
        """Spaces are few, whatever the number of documents; more are typed in."""
        projects = VisibilitySpace.objects.filter(visibility=Visibility.PROJECT)
        names = projects.order_by("project_scope").values_list("project_scope", flat=True)
        return list(names.distinct()[:_SUGGESTED_PROJECTS])


class SensitivityFilter(ChoiceFilter):
    title = "sensitivity"
    names = ("sensitivity",)
    conditions: ClassVar = {
        level: (level.value, Q(space__sensitivity=level)) for level in Sensitivity
    }


class AuthorityFilter(ChoiceFilter):
    title = "authority"
    names = ("authority",)
    conditions: ClassVar = {
        word: (word.value.replace("_", " "), _current(authority=word)) for word in Authority
    }


class MediaTypeFilter(ChoiceFilter):
    title = "media type"
    names = ("kind",)
    conditions: ClassVar = {
        **{kind: (label, _current(condition)) for kind, (label, condition) in _KINDS.items()},
        "other": ("another", _another_kind()),
    }


class LanguageFilter(ChoiceFilter):
    title = "language"
    names = ("language",)
    conditions: ClassVar = {name: (name, _current(language=name)) for name in sorted(LANGUAGES)}


class StateFilter(ChoiceFilter):
    title = "state"
    names = ("state",)
    conditions: ClassVar = {
        "live": ("searches find it", _live(Q(chunk_count__gt=_HELD_BACK))),
        "ingesting": (
            "a new version is on its way",
            Q(Exists(UnfinishedVersion.objects.filter(document_id=OuterRef("pk")))),
        ),
        "nothing": ("nothing of it was admitted", _live(Q(chunk_count=_HELD_BACK))),
        "quarantined": ("part is in quarantine", _live(Q(quarantined_count__gt=0))),
    }


class FlagFilter(ChoiceFilter):
    title = "instruction-like text"
    names = ("flagged",)
    conditions: ClassVar = {
        "yes": ("flagged", _live(Q(flagged_count__gt=0))),
        "no": ("none", ~_live(Q(flagged_count__gt=0))),
    }


class HoldFilter(ChoiceFilter):
    title = "legal hold"
    names = ("held",)
    conditions: ClassVar = {
        "yes": ("held", Q(legal_hold=True)),
        "no": ("not held", Q(legal_hold=False)),
    }


class IngestedByFilter(WordFilter):
    title = "admitted by"
    names = ("by",)
    field = "ingested_by_principal_id"


class AdmittedFilter(DayFilter):
    title = "first admitted"
    names = ("since", "until")
    field = "created_at"


FILTERS = (
    VisibilityFilter,
    ProjectFilter,
    SensitivityFilter,
    StateFilter,
    FlagFilter,
    HoldFilter,
    MediaTypeFilter,
    LanguageFilter,
    AuthorityFilter,
    IngestedByFilter,
    AdmittedFilter,
)
