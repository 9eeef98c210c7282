"""What an operator can do to documents, what each of it does, and what is asked before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django import forms

from access.trust import Sensitivity
from knowledge.core.types import BulkAction, Visibility
from knowledge.core.wording import REASON_LIMIT, TITLE_LIMIT

_PROJECT_LIMIT: Final = 200
_KEEP: Final = ("", "as it is")


class ReasonForm(forms.Form):
    reason = forms.CharField(
        max_length=REASON_LIMIT,
        widget=forms.TextInput(attrs={"size": 60, "autocomplete": "off"}),
        help_text="Kept in the event log for good, so do not quote the document.",
    )


class RetitleForm(ReasonForm):
    title = forms.CharField(
        max_length=TITLE_LIMIT, widget=forms.TextInput(attrs={"size": 60, "autocomplete": "off"})
    )
    field_order = ("title", "reason")


class RescopeForm(ReasonForm):
    visibility = forms.ChoiceField(
        required=False,
        choices=[
            _KEEP,
            (Visibility.TENANT.value, "the whole tenant"),
            (Visibility.PROJECT.value, "a project"),
            (Visibility.PRINCIPAL.value, "whoever admitted it, and nobody else"),
        ],
        label="Visible to",
    )
    project_scope = forms.CharField(
        required=False,
        max_length=_PROJECT_LIMIT,
        label="Project",
        help_text="For a document that is to be a project's.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    sensitivity = forms.ChoiceField(
        required=False, choices=[_KEEP, *((level.value, level.value) for level in Sensitivity)]
    )
    field_order = ("visibility", "project_scope", "sensitivity", "reason")

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if not any(given.get(name) for name in ("visibility", "project_scope", "sensitivity")):
            raise forms.ValidationError("Say what is to be different.")
        if given.get("project_scope") and given.get("visibility") != Visibility.PROJECT:
            self.add_error("project_scope", "Only a document of a project has one.")
        if given.get("visibility") == Visibility.PROJECT and not given.get("project_scope"):
            self.add_error("project_scope", "Which project?")
        return given

    def change(self) -> dict[str, str]:
        names = ("visibility", "project_scope", "sensitivity")
        return {name: self.cleaned_data[name] for name in names if self.cleaned_data[name]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """One thing to do: what it is called, what a button says, what it does.

    `title` has a place for what it is done to.
    """

    title: str
    button: str
    form: type[ReasonForm]
    effects: Sequence[str]


DOINGS: Final[Mapping[BulkAction, Doing]] = {
    BulkAction.DELETE: Doing(
        title="Delete {}",
        button="Delete",
        form=ReasonForm,
        effects=(
            "Searches stop finding it at once, and its citations stop resolving.",
            (
                "Traces keep the ids of its passages, marked as deleted; titles and headings are"
                " scrubbed from them."
            ),
            (
                "The source files are handed to the sweeper, which removes the bytes with its next"
                " pass."
            ),
            "What is under a legal hold stays, and the refusal is recorded.",
        ),
    ),
    BulkAction.RESCOPE: Doing(
        title="Change who may find {}",
        button="See what would change",
        form=RescopeForm,
        effects=(
            "The next search obeys, in every version, as of any instant.",
            "Whoever may not see it any more is told that there is no such passage.",
        ),
    ),
    BulkAction.HOLD: Doing(
        title="Put {} under legal hold",
        button="Hold",
        form=ReasonForm,
        effects=(
            (
                "Nobody can delete it until the hold is lifted: not its principal, not an operator,"
                " not the deletion of its conversation. Each try is recorded."
            ),
            "Searches go on finding it.",
        ),
    ),
    BulkAction.LIFT_HOLD: Doing(
        title="Lift the legal hold of {}",
        button="Lift the hold",
        form=ReasonForm,
        effects=("From then on it can be deleted again; nothing is deleted by this.",),
    ),
    BulkAction.RECHUNK: Doing(
        title="Divide {} anew",
        button="Divide anew",
        form=ReasonForm,
        effects=(
            (
                "The stored source is read, scanned and divided again by today's rules, beside the"
                " passages that are live. They change places in one step."
            ),
            "Older passages keep their ids and go on resolving.",
            (
                "What today's rules refuse, such as a secret that they see now, leaves the document"
                " as it is."
            ),
            "What is of today's versions already is left alone.",
        ),
    ),
}
RETITLE: Final = Doing(
    title="Change the title of {}",
    button="Change the title",
    form=RetitleForm,
    effects=(
        "Searches find it by the new title and no longer by the old one, in every version.",
        "Passages, their ids and citations stay. Traces keep the title that the model saw.",
    ),
)


def consequences(
    former: Mapping[str, str | None], change: Mapping[str, str], *, ingester: str
) -> list[str]:
    """For whom documents of one scope disappear, and to whom they appear.

    `former` has `visibility`, `project_scope` and `sensitivity`; `ingester` is who admitted them.
    """
    told = []
    old = _audience(former["visibility"], former["project_scope"], ingester)
    visibility = change.get("visibility") or former["visibility"]
    project = change.get("project_scope") or (
        former["project_scope"] if visibility == Visibility.PROJECT else None
    )
    new = _audience(visibility, project, ingester)
    if old != new:
        everybody = _audience(Visibility.TENANT, None, ingester)
        if new != everybody:
            told.append(f"It disappears for {old}, except for {new}.")
        if old != everybody:
            told.append(f"It appears to {new}.")
    before = Sensitivity(str(former["sensitivity"]))
    after = Sensitivity(change.get("sensitivity") or before)
    if before != after and before.at_most(after):
        told.append(f"It disappears for every key whose ceiling is below {after}.")
    elif before != after:
        told.append(f"It appears to keys with a ceiling of {after} or more.")
    return told or ["Nothing changes: it is so already."]


def _audience(visibility: str | None, project: str | None, ingester: str) -> str:
    if visibility == Visibility.PROJECT:
        return f"the project {project}"
    return ingester if visibility == Visibility.PRINCIPAL else "everybody in the tenant"
