"""Golden sets: questions with their right passages, runs, and recall over time."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST, require_safe

from access.admin_base import ReadOnlyPage, SearchedByKey
from access.errors import VerbatimError
from access.models import vocabulary_choices
from access.operator_session import may, operated_tenant, operator_principal
from access.principal import Principal
from access.trust import OperatorPermission, Sensitivity
from knowledge.admin.exporting import zip_response
from knowledge.admin.visits import note_visit
from knowledge.core.query import MAX_TEXT
from knowledge.core.types import AnswerState, GoldenRunState
from knowledge.evaluation.golden import import_set
from knowledge.evaluation.golden_archive import MOST_QUESTIONS, packed, unpacked
from knowledge.models import GoldenQuestion, GoldenResult, GoldenRun, GoldenSet
from knowledge.retrieval.acting import Viewpoint
from knowledge.retrieval.golden import GoldenAsked
from knowledge.tasks import hint_at_golden_run
from knowledge.wiring import store

_QUESTIONS_ON_PAGE: Final = 50
_RUNS_ON_PAGE: Final = 30
_UNPLACED_NAMED: Final = 10
_LONGEST_NUMBER: Final = 9
_UNFINISHED: Final = {GoldenRunState.QUEUED, GoldenRunState.RUNNING}
_STATES: Final = {
    AnswerState.CURRENT: "",
    AnswerState.MOVED: "in another passage now",
    AnswerState.SUPERSEDED: "its words are in no passage of the newest version",
    AnswerState.HIDDEN: "not visible to the set's principal",
    AnswerState.DELETED: "its document was deleted",
}


class GoldenSetForm(forms.ModelForm):  # type: ignore[type-arg]
    principal_id = forms.CharField(
        label="As principal",
        max_length=200,
        help_text="Through whose eyes the questions are asked.",
    )
    current_scope = forms.CharField(label="Project", max_length=200, required=False)
    sensitivity_ceiling = forms.ChoiceField(
        label="Ceiling", choices=vocabulary_choices(Sensitivity), initial=Sensitivity.INTERNAL.value
    )
    archive = forms.FileField(
        label="Questions",
        required=False,
        help_text=(
            "A zip that another set was exported as; of its documents none is admitted."
            " Without one the set is empty at first."
        ),
    )

    class Meta:
        model = GoldenSet
        # The row is made by the store, which `save_model` calls.
        fields = ("name",)


class QuestionForm(forms.Form):
    text = forms.CharField(
        label="Question", max_length=MAX_TEXT, widget=forms.Textarea(attrs={"rows": 2})
    )
    answers = forms.CharField(
        label="Right passages",
        max_length=1_000,
        widget=forms.TextInput(attrs={"placeholder": "kc_…", "autocomplete": "off"}),
        help_text="Their ids, apart by spaces.",
    )
    quote = forms.CharField(
        label="The words that answer",
        max_length=MAX_TEXT,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Of one passage; fewer than all of it, so that the question outlives edits.",
    )


@admin.register(GoldenSet)
class GoldenSetAdmin(SearchedByKey, ReadOnlyPage):
    list_display = ("name", "asked_as", "sensitivity_ceiling", "questions", "recall", "last_run")
    list_display_links = ("name",)
    search_fields = ("name",)
    searched_ids = ("id",)
    searched_names = ("name", "principal_id")
    search_help_text = "A set's id or name, or a principal."
    ordering = ("name", "id")
    form = GoldenSetForm
    add_form_template = "admin/change_form.html"
    page = "admin/knowledge/goldenset/page.html"

    # --- who may do what

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, OperatorPermission.MANAGE)

    def get_actions(self, request: HttpRequest) -> Any:
        return {}

    # --- the list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        of_set = GoldenQuestion.objects.filter(golden_set=OuterRef("pk")).order_by()
        counted = of_set.values("golden_set").annotate(all=Count("pk")).values("all")
        ended = GoldenRun.objects.filter(golden_set=OuterRef("pk"), state=GoldenRunState.DONE)
        last = ended.order_by("-id")
        listed: QuerySet[Any] = (
            super()
            .get_queryset(request)
            .annotate(
                question_count=Coalesce(Subquery(counted, output_field=IntegerField()), 0),
                last_recall=Subquery(last.values("recall_at_3")[:1]),
                last_stale=Subquery(last.values("stale")[:1]),
                last_finished=Subquery(last.values("finished_at")[:1]),
            )
        )
        return listed

    @admin.display(description="asked as")
    def asked_as(self, golden: GoldenSet) -> SafeString:
        of = f", {golden.current_scope}" if golden.current_scope else ""
        return format_html("<bdi>{}{}</bdi>", golden.principal_id, of)

    @admin.display(description="questions")
    def questions(self, golden: Any) -> str:
        return str(golden.question_count)

    @admin.display(description="recall@3")
    def recall(self, golden: Any) -> str:
        if golden.last_recall is None:
            return self.get_empty_value_display()
        stale = f", {golden.last_stale} stale" if golden.last_stale else ""
        return f"{golden.last_recall:.2f}{stale}"

    @admin.display(description="last run")
    def last_run(self, golden: Any) -> Any:
        return golden.last_finished

    # --- making one

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if operated_tenant(request):
            return GoldenSetForm
        tenant = forms.CharField(label="Tenant", max_length=100)
        return type("NewGoldenSetForm", (GoldenSetForm,), {"tenant_id": tenant})

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        named = ["name", "principal_id", "current_scope", "sensitivity_ceiling", "archive"]
        return named if operated_tenant(request) else ["tenant_id", *named]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        asked = form.cleaned_data
        operator = operator_principal(request, operated_tenant(request) or asked["tenant_id"])
        viewpoint = Viewpoint(
            principal_id=asked["principal_id"],
            current_scope=asked["current_scope"] or None,
            sensitivity_ceiling=Sensitivity(asked["sensitivity_ceiling"]),
        )
        if asked["archive"]:
            made = self._imported(request, asked, viewpoint, operator)
        else:
            made = store().create_golden_set(asked["name"], viewpoint, operator)
        obj.__dict__.update(
            {field.attname: getattr(made, field.attname) for field in self.opts.fields}
        )

    def _imported(
        self,
        request: HttpRequest,
        asked: Mapping[str, Any],
        viewpoint: Viewpoint,
        operator: Principal,
    ) -> GoldenSet:
        with unpacked(asked["archive"].file) as folder:
            taken = import_set(
                store(), asked["name"], viewpoint, operator, folder, most_questions=MOST_QUESTIONS
            )
        questions = f"{taken.questions} question" + "s" * (taken.questions != 1)
        self.message_user(request, f"Made, with {questions}.", messages.SUCCESS)
        if taken.unplaced:
            named = ", ".join(taken.unplaced[:_UNPLACED_NAMED])
            more = ", and more" if len(taken.unplaced) > _UNPLACED_NAMED else ""
            said = f"No passage here holds the words that answer {named}{more}."
            self.message_user(request, f"Left out: {len(taken.unplaced)}. {said}", messages.WARNING)
        return GoldenSet.objects.get(pk=taken.golden_set_id)

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        plain = {"show_save_and_add_another": False, "show_save_and_continue": False}
        try:
            return super().add_view(request, form_url, plain | (extra_context or {}))
        except VerbatimError as refused:
            self.message_user(request, f"Not made. {refused.detail}", messages.ERROR)
            return HttpResponseRedirect(reverse("admin:knowledge_goldenset_add"))

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(_page_of(obj))

    # --- one set

    def get_urls(self) -> list[URLPattern]:
        def view(of: Any) -> Any:
            return self.admin_site.admin_view(of)

        name = "knowledge_goldenset"
        posts: dict[str, Callable[..., HttpResponseBase]] = {
            "run": self.run_view,
            "add_question": self.add_question_view,
            "remove_question": self.remove_question_view,
            "export": self.export_view,
        }
        return [
            *(
                path(f"<path:object_id>/{what}/", view(require_POST(of)), name=f"{name}_{what}")
                for what, of in posts.items()
            ),
            path(
                "<path:object_id>/progress/",
                view(require_safe(self.progress_view)),
                name=f"{name}_progress",
            ),
            *super().get_urls(),
        ]

    def visited(self, request: HttpRequest, row: GoldenSet) -> None:
        note_visit(request, row.tenant_id, None, golden_set_id=str(row.pk))

    def run_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        golden = self._changed(request, object_id)

        def run(operator: Principal) -> str:
            begun = store().begin_golden_run(golden.pk, operator)
            hint_at_golden_run(begun.pk)
            return "The questions are being asked; this page shows how far it has come."

        return self.acted(request, golden.tenant_id, run, then=_page_of(golden))

    def add_question_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        golden = self._changed(request, object_id)
        form = QuestionForm(request.POST)
        if not form.is_valid():
            return self.shown(request, golden, form=form)
        chosen = form.cleaned_data["answers"].split()
        asked = GoldenAsked(
            text=form.cleaned_data["text"],
            answers=dict.fromkeys(chosen, form.cleaned_data["quote"]),
        )

        def keep(operator: Principal) -> str:
            store().keep_golden_question(golden.pk, asked, operator)
            return "Kept. The next run asks it."

        return self.acted(request, golden.tenant_id, keep, then=_page_of(golden))

    def remove_question_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        golden = self._changed(request, object_id)
        number = _number(request.POST.get("question", ""))
        if not golden.questions.filter(pk=number).exists():
            raise Http404

        def remove(operator: Principal) -> str:
            store().remove_golden_question(number, operator)
            return "Removed, with what it came to in every run."

        return self.acted(request, golden.tenant_id, remove, then=_page_of(golden))

    def export_view(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """Posted, for it is on record who took it along."""
        golden = self._changed(request, object_id)
        try:
            archived = packed(golden.name, operator_principal(request, golden.tenant_id))
        except VerbatimError as refused:
            self.message_user(request, f"Not exported. {refused.detail}", messages.ERROR)
            return HttpResponseRedirect(_page_of(golden))
        return zip_response(request, archived, f"{golden.name}.zip")

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        golden = self._changed(request, object_id)
        if request.method == "POST" and "confirmed" in request.POST:
            store().remove_golden_set(golden.pk, operator_principal(request, golden.tenant_id))
            self.message_user(request, "Removed, with its questions and runs.", messages.SUCCESS)
            return HttpResponseRedirect(reverse("admin:knowledge_goldenset_changelist"))
        context = {
            "title": "Remove golden set",
            "golden": golden,
            "questions": golden.questions.count(),
            "runs": golden.runs.count(),
        }
        return self.rendered(request, "admin/knowledge/goldenset/delete.html", context)

    def progress_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """How far the newest run has come, as a piece of the page; ended, the page is read anew."""
        golden = self.found(request, object_id)
        newest = golden.runs.first()
        if newest is None or newest.state not in _UNFINISHED:
            return HttpResponse(headers={"HX-Refresh": "true"})
        context = {"run": newest, "golden": golden}
        return TemplateResponse(request, "admin/knowledge/goldenset/progress.html", context)

    def _changed(self, request: HttpRequest, object_id: str) -> GoldenSet:
        golden: GoldenSet = self.found(request, object_id)
        if not may(request, OperatorPermission.MANAGE):
            raise PermissionDenied
        return golden

    def context(self, request: HttpRequest, row: GoldenSet) -> dict[str, Any]:
        runs = list(row.runs.all()[:_RUNS_ON_PAGE])
        page = max(_number(request.GET.get("page", "")), 1)
        first = (page - 1) * _QUESTIONS_ON_PAGE
        asked = list(
            row.questions.prefetch_related("answers")[first : first + _QUESTIONS_ON_PAGE + 1]
        )
        shown = asked[:_QUESTIONS_ON_PAGE]
        newest = runs[0] if runs else None
        return {
            "title": row.name,
            "golden": row,
            "questions": _with_outcomes(shown, [run for run in runs if _ended(run)][:2]),
            "page": page,
            "more": len(asked) > _QUESTIONS_ON_PAGE,
            "runs": runs,
            "run": newest if newest is not None and not _ended(newest) else None,
            "last": next((run for run in runs if run.state == GoldenRunState.DONE), None),
            "chart": recall_chart(runs),
            "form": QuestionForm(),
        }


def _page_of(golden: GoldenSet) -> str:
    return reverse("admin:knowledge_goldenset_change", args=[golden.pk])


def _ended(run: GoldenRun) -> bool:
    return run.state not in _UNFINISHED


def _with_outcomes(
    questions: Sequence[GoldenQuestion], runs: Sequence[GoldenRun]
) -> list[dict[str, Any]]:
    """Each question with what it came to in the last run, and whether that is news."""
    results = GoldenResult.objects.filter(run__in=runs, question__in=questions)
    by_run = {(one.question_id, one.run_id): one for one in results}
    shown = []
    for question in questions:
        last, before = (
            by_run.get((question.pk, run.pk)) if run is not None else None
            for run in (*runs, None, None)[:2]
        )
        shown.append(
            {
                "row": question,
                "answers": [
                    {"row": answer, "says": _STATES[AnswerState(answer.state)]}
                    for answer in question.answers.all()
                ],
                "last": last,
                "was": before.outcome
                if last is not None and before is not None and before.outcome != last.outcome
                else "",
            }
        )
    return shown


# --- recall over time, drawn here: a few numbers need no script


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartPoint:
    x: str
    y: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`line` is the path between the points, in the frame of `recall_chart`."""

    points: tuple[ChartPoint, ...]
    line: str


_WIDTH, _HEIGHT, _MARGIN = 600.0, 160.0, 12.0


def recall_chart(runs: Sequence[GoldenRun]) -> Chart | None:
    """Recall@3 of the runs that have one, oldest first; `None` for fewer than two."""
    told = [run for run in reversed(runs) if run.recall_at_3 is not None]
    if len(told) < 2:  # noqa: PLR2004 - one point is no line
        return None
    points = []
    for place, run in enumerate(told):
        x = _MARGIN + place * (_WIDTH - 2 * _MARGIN) / (len(told) - 1)
        y = _MARGIN + (1.0 - (run.recall_at_3 or 0.0)) * (_HEIGHT - 2 * _MARGIN)
        when = f"{run.created_at:%Y-%m-%d %H:%M}"
        said = f"{when}: recall@3 {run.recall_at_3:.2f} ({run.found} of {run.asked - run.stale})"
        points.append(ChartPoint(x=f"{x:.1f}", y=f"{y:.1f}", said=said))
    return Chart(points=tuple(points), line=" ".join(f"{point.x},{point.y}" for point in points))


def _number(text: str) -> int:
    told = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
    return int(text) if told else 0
