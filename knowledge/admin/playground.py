"""The playground: a search through somebody's eyes, with every knob, and two ways beside each other."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from rest_framework.exceptions import ErrorDetail

from access.admin_base import OperatorAdmin
from access.errors import VerbatimError
from access.models import ApiKey, vocabulary_choices
from access.operator_session import operated_tenant, operator_principal
from access.principal import Principal
from access.trust import Sensitivity
from knowledge.admin.trace_page import trace_context
from knowledge.api.serializers import SearchRequestSerializer
from knowledge.core.query import MAX_TEXT
from knowledge.core.types import KnowledgeQuery, Visibility
from knowledge.evaluation.variants import WITHOUT, with_fusions
from knowledge.models import RecallTrace, VisibilitySpace
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.search import Searcher
from knowledge.wiring import store

_OFFERED: Final = 100
_NAME: Final = 200
# A query that has something of everything has every way of searching it.
_EVERYTHING: Final = KnowledgeQuery(text="", objective="o", entities=("e",), aliases={"e": ("a",)})
_TEXT: Final = {"autocomplete": "off"}
_LONG: Final = {"rows": 2, "autocomplete": "off"}


def ways() -> dict[str, Searcher]:
    """Every way of searching by its name; the first is the one that is set up."""
    return with_fusions(store().searcher, [_EVERYTHING])


def _way_choices() -> list[tuple[str, str]]:
    first, *others = ways()
    return [
        (first, f"{first}, as it is set up"),
        *((name, name.replace(WITHOUT, " without ").replace("-", " ")) for name in others),
    ]


class PlaygroundForm(forms.Form):
    """Whose eyes, what is asked, and the knobs; limits are those of the API's own search."""

    text = forms.CharField(
        label="Question",
        max_length=MAX_TEXT,
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 2, "autofocus": True}),
    )
    principal_id = forms.CharField(
        label="As principal",
        max_length=_NAME,
        widget=forms.TextInput(attrs={**_TEXT, "list": "known-principals"}),
    )
    current_scope = forms.CharField(
        label="Project",
        max_length=_NAME,
        required=False,
        widget=forms.TextInput(attrs={**_TEXT, "list": "known-projects"}),
    )
    sensitivity_ceiling = forms.ChoiceField(
        label="Ceiling", choices=vocabulary_choices(Sensitivity), initial=Sensitivity.INTERNAL.value
    )
    way = forms.ChoiceField(label="Way of searching", choices=_way_choices)
    beside = forms.ChoiceField(
        label="Compare with",
        required=False,
        choices=lambda: [("", "nothing"), *_way_choices()],
    )
    as_of = forms.CharField(
        label="As of",
        max_length=40,
        required=False,
        widget=forms.TextInput(attrs={**_TEXT, "placeholder": "2026-07-28T00:00:00Z"}),
        help_text="With an offset. Empty: now.",
    )
    budget_tokens = forms.IntegerField(label="Token budget", initial=3_000)
    max_passages = forms.IntegerField(label="Passages at most", initial=3)
    max_per_document = forms.IntegerField(label="A document at most", initial=2)
    min_score = forms.FloatField(
        label="Floor",
        required=False,
        widget=forms.NumberInput(attrs={"step": "0.01"}),
        help_text="Empty: the policy's own.",
    )
    objective = forms.CharField(required=False, widget=forms.TextInput(attrs=_TEXT))
    entities = forms.CharField(
        required=False, widget=forms.Textarea(attrs=_LONG), help_text="One a line."
    )
    aliases = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs=_LONG),
        help_text="One entity a line: FG = Frostgate, the gate",
    )
    tenant = forms.CharField(max_length=100, widget=forms.TextInput(attrs=_TEXT))

    def __init__(self, *args: Any, names_tenant: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not names_tenant:
            del self.fields["tenant"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        asked = SearchRequestSerializer(data=self._as_request(cleaned))
        if asked.is_valid():
            self.query: KnowledgeQuery = asked.value()
            return cleaned
        for name, problems in asked.errors.items():
            field = name if name in self.fields else None
            self.add_error(field, _said(problems))
        return cleaned

    def viewpoint(self) -> Viewpoint:
        return Viewpoint(
            principal_id=self.cleaned_data["principal_id"],
            current_scope=self.cleaned_data["current_scope"] or None,
            sensitivity_ceiling=Sensitivity(self.cleaned_data["sensitivity_ceiling"]),
        )

    def _as_request(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        aliases: dict[str, list[str]] = {}
        for line in _lines(cleaned["aliases"]):
            entity, _, names = line.partition("=")
            words = [name.strip() for name in names.split(",") if name.strip()]
            aliases.setdefault(entity.strip(), []).extend(words)
        return {
            "text": cleaned["text"],
            "current_scope": cleaned["current_scope"] or None,
            "as_of": cleaned["as_of"].strip() or None,
            "budget_tokens": cleaned["budget_tokens"],
            "max_passages": cleaned["max_passages"],
            "max_per_document": cleaned["max_per_document"],
            "min_score": cleaned["min_score"],
            "objective": cleaned["objective"] or None,
            "entities": _lines(cleaned["entities"]),
            "aliases": aliases,
        }


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _said(problems: Any) -> str:
    """What a serializer says of a field, or of a part of it."""
    if isinstance(problems, ErrorDetail | str):
        return str(problems)
    parts = problems.values() if isinstance(problems, dict) else problems
    return " ".join(dict.fromkeys(_said(part) for part in parts))


def playground_view(model_admin: OperatorAdmin, request: HttpRequest) -> HttpResponse:
    """The form; sent, it searches and shows the traces of what it did."""
    names_tenant = operated_tenant(request) is None
    sent = request.method == "POST"
    form = PlaygroundForm(
        request.POST if sent else None,
        names_tenant=names_tenant,
        initial=_initial(request),
    )
    found: list[dict[str, Any]] = []
    if sent and form.is_valid():
        operator = operator_principal(request, form.cleaned_data.get("tenant"))
        try:
            found = _searched(form, operator)
        except VerbatimError as refused:
            form.add_error(None, refused.detail)
    context = {
        "title": "Playground",
        "form": form,
        "found": found,
        **(_beside(found) if len(found) > 1 else {}),
        **_known(operated_tenant(request)),
    }
    return model_admin.rendered(request, "admin/knowledge/recalltrace/playground.html", context)


def _searched(form: PlaygroundForm, operator: Principal) -> list[dict[str, Any]]:
    chosen = [form.cleaned_data["way"]]
    if form.cleaned_data["beside"]:
        chosen.append(form.cleaned_data["beside"])
    by_name, found = ways(), []
    for name in chosen:
        result = store().search_as(form.query, form.viewpoint(), operator, by_name[name])
        view = store().view_trace(result.trace_id, operator)
        found.append({"way": name, "one": trace_context(view, operator)})
    return found


def _beside(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The passages of two results in one list: handed out ones first, each with both its places."""
    sides = [{row["chunk_id"]: row for row in one["one"]["rows"]} for one in found]
    shown = [[name for name, row in side.items() if row["state"] == "shown"] for side in sides]
    first, second = sides
    rows = []
    for chunk_id in dict.fromkeys([*shown[0], *shown[1], *first, *second]):
        known = first.get(chunk_id) or second[chunk_id]
        both = [side.get(chunk_id) for side in sides]
        handed = [row is not None and row["state"] == "shown" for row in both]
        rows.append({**known, "sides": both, "differs": handed[0] != handed[1]})
    return {
        "compared": rows,
        "same": set(shown[0]) == set(shown[1]),
        "same_order": shown[0] == shown[1],
    }


def _initial(request: HttpRequest) -> dict[str, Any]:
    """What a trace asked, when the address names one that the operator may see."""
    named = request.GET.get("trace", "")
    if not named:
        return {}
    try:
        trace = RecallTrace.objects.filter(pk=named).first()
    except (ValueError, forms.ValidationError):
        return {}
    if trace is None or trace.query_text is None or trace.asked is None:
        return {}
    asked = trace.asked
    return {
        "text": trace.query_text,
        "principal_id": trace.principal_id,
        "current_scope": trace.current_scope or "",
        "sensitivity_ceiling": trace.sensitivity_ceiling,
        "tenant": trace.tenant_id,
        "as_of": "" if trace.live else trace.as_of.isoformat(),
        "objective": asked.get("objective") or "",
        "entities": "\n".join(asked.get("entities") or ()),
        "aliases": "\n".join(
            f"{entity} = {', '.join(names)}"
            for entity, names in (asked.get("aliases") or {}).items()
        ),
        **{
            name: asked[name]
            for name in ("budget_tokens", "max_passages", "max_per_document")
            if name in asked
        },
    }


def _known(tenant: str | None) -> dict[str, list[str]]:
    """Names to choose from; the tenant's own, so that a superuser of all is offered none."""
    if tenant is None:
        return {"principals": [], "projects": []}
    principals = ApiKey.objects.order_by("principal_id").values_list("principal_id", flat=True)
    projects = VisibilitySpace.objects.filter(visibility=Visibility.PROJECT)
    return {
        "principals": list(principals.distinct()[:_OFFERED]),
        "projects": [
            str(project)
            for project in projects.order_by("project_scope")
            .values_list("project_scope", flat=True)
            .distinct()[:_OFFERED]
        ],
    }
