"""Admitting files in the admin: many at once, in the operator's name, each with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final, cast
from uuid import UUID

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from access.errors import VerbatimError
from access.operator_session import operated_tenant, operator_principal
from access.trust import Sensitivity
from knowledge.core.types import Authority, JobState, Visibility
from knowledge.core.wording import TITLE_LIMIT
from knowledge.models import IngestJob
from knowledge.passage_html import visible_html
from knowledge.tasks import hint
from knowledge.wiring import store

_FIELDS: Final = ("visibility", "project_scope", "sensitivity", "authority")
_PLAIN = forms.TextInput(attrs={"autocomplete": "off"})


class _FileInputs(forms.FileInput):
    allow_multiple_selected = True


class _ManyFiles(forms.FileField):
    widget = _FileInputs(attrs={"multiple": True})

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile[Any]]:
        given = data or [None] if isinstance(data, list | tuple) else [data]
        return [
            cast("UploadedFile[Any]", super(_ManyFiles, self).clean(one, initial)) for one in given
        ]


class AddForm(forms.Form):
    upload = _ManyFiles(
        label="Files",
        help_text="One or many: Markdown, plain text, PDF, Word, HTML, JSON. Or drop them here.",
    )
    tenant = forms.CharField(max_length=100, widget=_PLAIN)
    visibility = forms.ChoiceField(
        label="Visible to",
        choices=[
            (Visibility.TENANT.value, "the whole tenant"),
            (Visibility.PROJECT.value, "a project"),
            (Visibility.PRINCIPAL.value, "me alone"),
        ],
    )
    project_scope = forms.CharField(
        required=False,
        max_length=200,
        label="Project",
        widget=_PLAIN,
        help_text="For documents of a project.",
    )
    sensitivity = forms.ChoiceField(
        choices=[(level.value, level.value) for level in Sensitivity],
        initial=Sensitivity.INTERNAL.value,
    )
    authority = forms.ChoiceField(
        label="How it was obtained",
        choices=[
            (Authority.PRINCIPAL_SUPPLIED.value, "I was given it"),
            (Authority.PRINCIPAL_AUTHORED.value, "I wrote it"),
            (Authority.FETCHED.value, "it was fetched from somewhere"),
        ],
        initial=Authority.PRINCIPAL_SUPPLIED.value,
    )
    naming = forms.ChoiceField(
        label="Title",
        choices=[
            ("stem", "the file's name without its ending"),
            ("name", "the file's name"),
            ("given", "what is written below"),
        ],
    )
    title = forms.CharField(
        required=False,
        max_length=TITLE_LIMIT,
        label="This title",
        widget=_PLAIN,
        help_text="For one file.",
    )

    def __init__(self, request: HttpRequest) -> None:
        posted = request.method == "POST"
        super().__init__(request.POST if posted else None, request.FILES if posted else None)
        if operated_tenant(request):
            del self.fields["tenant"]

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        of_project = given.get("visibility") == Visibility.PROJECT
        if of_project and not given.get("project_scope"):
            self.add_error("project_scope", "Which project?")
        if not of_project and given.get("project_scope"):
            self.add_error("project_scope", "Only documents of a project have one.")
        if given.get("naming") == "given":
            if not given.get("title"):
                self.add_error("title", "Which title?")
            # A page that sends file by file says how many there are.
            if len(given.get("upload") or []) > 1 or self.data.get("count", "1") != "1":
                self.add_error("title", "One title is for one file.")
        return given

    def asked(self, filename: str) -> dict[str, Any]:
        """The fields of an `IngestRequest` for one of the files."""
        given = self.cleaned_data
        titles = {
            "stem": PurePath(filename).stem or filename,
            "name": filename,
            "given": given["title"],
        }
        return {
            "title": titles[given["naming"]][:TITLE_LIMIT],
            "visibility": Visibility(given["visibility"]),
            "project_scope": given["project_scope"] or None,
            "sensitivity": Sensitivity(given["sensitivity"]),
            "authority": Authority(given["authority"]),
        }


def hand_in_all(request: HttpRequest, form: AddForm) -> list[dict[str, Any]]:
    """Enqueues each file by itself: one that is refused keeps no other back."""
    operator = operator_principal(request, form.cleaned_data.get("tenant"))
    added = []
    for file in form.cleaned_data["upload"]:
        filename = file.name or "file"
        told: dict[str, Any] = {"filename": visible_html(filename), "byte_size": file.size}
        try:
            job = store().hand_in(file.file, operator, filename=filename, **form.asked(filename))
        except VerbatimError as refused:
            told["problem"] = refused.problem()
        else:
            hint(job.job_id)
            told |= job_context(job)
        added.append(told)
    return added


def not_handed_in(form: AddForm) -> dict[str, Any]:
    """What is wrong with the form, said where the file would be told of."""
    said = [
        f"{form.fields[name].label or name}: {error}" if name in form.fields else str(error)
        for name, errors in form.errors.items()
        for error in errors
    ]
    files = form.files.getlist("upload")
    return {
        "filename": visible_html(files[0].name or "file") if files else "–",
        "byte_size": files[0].size if files else 0,
        "problem": {
            "code": "malformed",
            "title": "The form is not complete.",
            "detail": " ".join(said),
        },
    }


def job_context(job: IngestJob) -> dict[str, Any]:
    result: Mapping[str, Any] = job.result or {}
    ended = job.state not in {JobState.QUEUED, JobState.RUNNING}
    return {
        "job": job,
        "ended": ended,
        "result": result if job.state == JobState.DONE else None,
        # While it is tried again, what went wrong last is no refusal.
        "problem": job.problem if ended else None,
    }


def job_state(request: HttpRequest, job_id: str) -> HttpResponse:
    """How far one file is, for the page to fetch anew."""
    try:
        job = IngestJob.objects.filter(job_id=UUID(job_id)).first()
    except ValueError as impossible:
        raise Http404 from impossible
    if job is None:
        raise Http404
    return TemplateResponse(request, "admin/knowledge/document/added_state.html", job_context(job))
