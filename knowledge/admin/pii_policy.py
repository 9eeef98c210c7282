"""What a tenant does about personal data, as a form: a row of each tenant that ever set it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin

from access.admin_base import OneForEachTenant
from access.errors import VerbatimError
from access.principal import Principal
from knowledge.adapters.pii import known_countries
from knowledge.core.admission import Detector, PiiRules
from knowledge.core.types import Verdict
from knowledge.models import PiiPolicy
from knowledge.wiring import store

_OFF = ""
_CHOICES = [
    (_OFF, "admit: do not look for it"),
    (Verdict.QUARANTINE.value, "quarantine: keep the passage until an operator decides"),
    (Verdict.REJECT.value, "reject: leave the passage out"),
]
_LABELS = {
    Detector.EMAIL: "E-mail addresses",
    Detector.PHONE: "Telephone numbers",
    Detector.CARD: "Payment cards",
    Detector.IBAN: "IBANs",
    Detector.NATIONAL_ID: "National ids",
}


class PiiPolicyForm(forms.ModelForm):  # type: ignore[type-arg]
    countries = forms.CharField(
        required=False,
        help_text="Two-letter codes, apart by spaces: whose national ids are looked for, and whose"
        f" telephone numbers are known without a country code. Known: {' '.join(known_countries())}.",
    )

    class Meta:
        model = PiiPolicy
        # The rest of the row is made by the store, which `save_model` calls.
        fields = ("countries",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["countries"] = " ".join(self.instance.countries)
        for detector in Detector:
            self.fields[detector.value] = forms.ChoiceField(
                choices=_CHOICES,
                required=False,
                label=_LABELS[detector],
                initial=self.instance.verdicts.get(detector.value, _OFF),
            )
        self.order_fields([*(detector.value for detector in Detector), "countries"])

    def clean_countries(self) -> list[str]:
        codes = self.cleaned_data["countries"].replace(",", " ").upper().split()
        unknown = sorted(set(codes) - set(known_countries()))
        if unknown:
            raise forms.ValidationError(f"Not known: {', '.join(code[:10] for code in unknown)}.")
        return sorted(set(codes))

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                self.rules()
            except VerbatimError as refused:
                raise forms.ValidationError(refused.detail) from refused
        return cleaned

    def rules(self) -> PiiRules:
        chosen = {detector: self.cleaned_data.get(detector.value) for detector in Detector}
        return PiiRules(
            verdicts={detector: Verdict(word) for detector, word in chosen.items() if word},
            countries=tuple(self.cleaned_data["countries"]),
        )


@admin.register(PiiPolicy)
class PiiPolicyAdmin(OneForEachTenant):
    list_display = ("tenant", "looked_for", "changed_at", "changed_by")
    list_display_links = ("tenant",)
    form = PiiPolicyForm

    @admin.display(description="looked for")
    def looked_for(self, policy: PiiPolicy) -> str:
        rules = ", ".join(f"{name}: {verdict}" for name, verdict in sorted(policy.verdicts.items()))
        return rules or self.get_empty_value_display()

    def saved(self, form: Any, operator: Principal) -> PiiPolicy:
        return store().set_pii_policy(form.rules(), operator)
