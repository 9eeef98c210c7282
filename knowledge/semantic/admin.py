"""What the semantic arm has to show for itself: its models and vectors, and who has it switched on."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from typing import Any, Final

from django.contrib import admin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.admin_base import ReadOnlyPage
from access.admin_filters import TenantFilter
from access.operator_session import is_superuser
from knowledge.models import ArmSwitch, Chunk, KnowledgeEvent
from knowledge.semantic import coverage, spaces
from knowledge.semantic.models import ChunkVector, EmbeddingSpace, EmbeddingState

_STATES: Final = {
    EmbeddingState.LIVE: "ok",
    EmbeddingState.FILLING: "held",
    EmbeddingState.RETIRED: "",
}
_MEASURES: Final = {
    "ndcg_at_10": "nDCG@10",
    "hit_at_3": "hit@3",
    "recall_at_10": "recall@10",
    "mrr_at_10": "MRR@10",
}


@admin.register(EmbeddingSpace)
class EmbeddingSpaceAdmin(ReadOnlyPage):
    """Of all spaces an operator sees the one that searches read, and those that hold vectors of
    their tenant's. The figures are the tenant's own as well."""

    list_display = ("model", "dimensions", "state_badge", "created_at", "live_at", "retired_at")
    list_display_links = ("model",)
    ordering = ("-id",)
    page = "admin/semantic/embeddingspace/page.html"

    def get_list_display(self, request: HttpRequest) -> Any:
        return self.list_display  # a space is no tenant's

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found = super().get_queryset(request)
        if is_superuser(request):
            return found
        # Passages under row-level security: a vector by itself is nobody's.
        own = ChunkVector.objects.filter(chunk=OuterRef("pk"), embedding=OuterRef(OuterRef("pk")))
        return found.filter(
            Q(state=EmbeddingState.LIVE) | Exists(Chunk.objects.filter(Exists(own)))
        )

    @admin.display(description="state", ordering="state")
    def state_badge(self, space: EmbeddingSpace) -> SafeString:
        return _badge(_STATES[EmbeddingState(space.state)], space.state)

    def context(self, request: HttpRequest, row: EmbeddingSpace) -> dict[str, Any]:
        counted = coverage.of_space(row.pk)
        return {
            "title": row.model,
            "row": row,
            "state": self.state_badge(row),
            "coverage": counted,
            "incomplete": counted.missing and row.state != EmbeddingState.RETIRED,
            "most_counted": coverage.MOST_COUNTED,
            "bytes": counted.vectors * spaces.bytes_of_vector(row.dimensions),
            "graph_bytes": spaces.bytes_of_graph(row.pk) if is_superuser(request) else None,
            "switches": ArmSwitch.objects.filter(figures__model=row.model).order_by("tenant_id"),
        }


@admin.register(ArmSwitch)
class ArmSwitchAdmin(ReadOnlyPage):
    """A tenant without a row searches by words alone, as one whose switch is off."""

    list_display = ("arm_name", "state", "lift", "collection", "changed_at", "changed_by")
    list_display_links = ("arm_name",)
    ordering = ("tenant_id", "arm")
    page = "admin/knowledge/armswitch/page.html"

    def get_list_filter(self, request: HttpRequest) -> Any:
        return [TenantFilter] if is_superuser(request) else []

    @admin.display(description="arm", ordering="arm")
    def arm_name(self, switch: ArmSwitch) -> str:
        return switch.arm

    @admin.display(description="state", ordering="enabled")
    def state(self, switch: ArmSwitch) -> SafeString:
        return _badge("ok", "on") if switch.enabled else _badge("", "off")

    @admin.display(description="lift of nDCG@10")
    def lift(self, switch: ArmSwitch) -> str:
        lift = switch.figures.get("lift")
        return self.get_empty_value_display() if lift is None else f"{lift:+.3f}"

    @admin.display(description="measured on")
    def collection(self, switch: ArmSwitch) -> SafeString | str:
        said = switch.figures.get("collection")
        return format_html("<bdi>{}</bdi>", said) if said else self.get_empty_value_display()

    def context(self, request: HttpRequest, row: ArmSwitch) -> dict[str, Any]:
        figures = row.figures
        events = reverse("admin:knowledge_knowledgeevent_changelist")
        model = figures.get("model")
        return {
            "title": str(row),
            "row": row,
            "state": self.state(row),
            "figures": figures,
            "lift": self.lift(row),
            "measures": [
                (name, figures["without"].get(key), figures["with_arm"].get(key))
                for key, name in _MEASURES.items()
                if figures
            ],
            "space": EmbeddingSpaceAdmin(EmbeddingSpace, self.admin_site)
            .get_queryset(request)
            .filter(model=model)
            .first(),
            "events_url": f"{events}?name={KnowledgeEvent.ARM_CHANGED}",
        }


def _badge(kind: str, said: str) -> SafeString:
    return format_html('<span class="badge {}">{}</span>', kind, said)
