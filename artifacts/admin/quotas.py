"""What a tenant's uploads may take up, where that is not what all others' may."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.contrib import admin
from django.template.defaultfilters import filesizeformat

from access.admin_base import OneForEachTenant
from access.principal import Principal
from artifacts.models import UploadQuota
from artifacts.quota import set_quota

_LARGEST: Final = 2**63 - 1


class UploadQuotaForm(forms.ModelForm):  # type: ignore[type-arg]
    quota_bytes = forms.IntegerField(
        label="Bytes",
        min_value=0,
        max_value=_LARGEST,
        help_text="0 is no limit. manage.py upload_quota --default gives the tenant what holds for"
        " all others again.",
    )

    class Meta:
        model = UploadQuota
        # The rest of the row is made by `set_quota`, which saving calls.
        fields = ("quota_bytes",)


@admin.register(UploadQuota)
class UploadQuotaAdmin(OneForEachTenant):
    list_display = ("tenant", "quota", "changed_at", "changed_by")
    list_display_links = ("tenant",)
    form = UploadQuotaForm

    @admin.display(description="quota", ordering="quota_bytes")
    def quota(self, row: UploadQuota) -> str:
        return filesizeformat(row.quota_bytes) if row.quota_bytes else "no limit"

    def saved(self, form: Any, operator: Principal) -> UploadQuota:
        return set_quota(operator, form.cleaned_data["quota_bytes"])
