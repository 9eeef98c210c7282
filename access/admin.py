"""API keys, and for superusers the people: users and which tenant each of them looks after."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from access import audit
from access.admin_base import OperatorAdmin, SuperuserOnly, breakable
from access.models import ApiKey, Operator, vocabulary_choices
from access.operator_session import (
    is_superuser,
    may,
    operated_tenant,
    operator_name,
    operator_principal,
    permissions_of,
)
from access.principal import Principal
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity

if TYPE_CHECKING:
    _ApiKeyModelForm = forms.ModelForm[ApiKey]
    _StackedInline = admin.StackedInline[Operator, User]
else:
    _ApiKeyModelForm = forms.ModelForm
    _StackedInline = admin.StackedInline

_PROJECT_LIMIT = 200


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    """What a new key may do. The tenant is the operator's own; a superuser names one."""

    principal_id = forms.CharField(
        label="Principal",
        max_length=200,
        help_text="Who the key speaks for, such as agent:release-notes.",
    )
    scopes = forms.MultipleChoiceField(
        choices=vocabulary_choices(Scope),
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text="Searching needs none of them.",
    )
    projects = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3}),
        required=False,
        help_text="Projects that the key may name as its current scope, one a line.",
    )
    all_projects = forms.BooleanField(
        required=False, label="Any project", help_text="The key may name every project."
    )
    max_origin_trust = forms.ChoiceField(
        label="Highest origin trust",
        initial=OriginTrust.EXTERNAL_UNTRUSTED.value,
        help_text="Admitting a document needs USER.",
    )
    sensitivity_ceiling = forms.ChoiceField(initial=Sensitivity.INTERNAL.value)
    requests_per_minute = forms.IntegerField(
        min_value=0,
        max_value=1_000_000,
        required=False,
        label="Requests a minute",
        help_text="Empty means what holds for every key here, 0 no limit.",
    )
    expires_at = forms.DateTimeField(
        widget=forms.DateTimeInput({"type": "datetime-local"}),
        required=False,
        label="Expires",
        help_text="On your clock. Empty means never.",
    )

    class Meta:
        model = ApiKey
        # The rest of the row is made by `ApiKey.issue`, which `save_model` calls.
        fields = ("name",)

    def clean_projects(self) -> list[str]:
        named = [line.strip() for line in self.cleaned_data["projects"].splitlines()]
        projects = sorted({name for name in named if name})
        if any(len(name) > _PROJECT_LIMIT for name in projects):
            raise forms.ValidationError(f"A project has at most {_PROJECT_LIMIT} characters.")
        return projects

    def clean_expires_at(self) -> datetime | None:
        expires: datetime | None = self.cleaned_data["expires_at"]
        if expires is not None and expires <= timezone.now():
            raise forms.ValidationError("This has passed already.")
        return expires


class KeyStateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("usable", "usable"), ("expired", "expired"), ("revoked", "revoked")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        expired = Q(expires_at__lte=timezone.now())
        match self.value():
            case "usable":
                return queryset.filter(revoked_at__isnull=True).exclude(expired)
            case "expired":
                return queryset.filter(expired, revoked_at__isnull=True)
            case "revoked":
                return queryset.filter(revoked_at__isnull=False)
        return queryset


@admin.register(ApiKey)
class ApiKeyAdmin(OperatorAdmin):
    """Keys are issued and revoked, never edited: what a key may do is settled when it is made."""

    list_display = (
        "named",
        "principal_id",
        "scope_list",
        "limits",
        "state",
        "last_used_at",
    )
    list_filter = (KeyStateFilter, "max_origin_trust", "sensitivity_ceiling")
    search_fields = ("prefix", "name", "principal_id")
    search_help_text = "Prefix, name or principal."
    actions = ("revoke_selected",)
    change_form_template = "admin/access/apikey/change_form.html"
    add_form_template = "admin/change_form.html"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return may(request, OperatorPermission.MANAGE)

    @admin.display(description="key", ordering="prefix")
    def named(self, key: ApiKey) -> SafeString:
        return format_html('{}<bdi class="quiet about-it">{}</bdi>', key, key.name)

    @admin.display(description="key", ordering="prefix")
    def key(self, key: ApiKey) -> str:
        return str(key)

    @admin.display(description="scopes")
    def scope_list(self, key: ApiKey) -> str:
        return ", ".join(key.scopes) or self.get_empty_value_display()

    @admin.display(description="up to", ordering="max_origin_trust")
    def limits(self, key: ApiKey) -> SafeString:
        return format_html(
            '{}<span class="quiet about-it">{}</span>',
            breakable(key.max_origin_trust),
            key.sensitivity_ceiling,
        )

    @admin.display(description="projects")
    def project_list(self, key: ApiKey) -> str:
        named = ", ".join(key.projects) or self.get_empty_value_display()
        return "any" if key.all_projects else named

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        if key.revoked_at is not None:
            return "revoked"
        return "usable" if key.usable_at(timezone.now()) else "expired"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            tenant = [] if operated_tenant(request) else ["tenant_id"]
            return [
                *tenant,
                "name",
                "principal_id",
                "scopes",
                "all_projects",
                "projects",
                "max_origin_trust",
                "sensitivity_ceiling",
                "requests_per_minute",
                "expires_at",
            ]
        return [
            "key",
            "name",
            "tenant_id",
            "principal_id",
            "scope_list",
            "project_list",
            "max_origin_trust",
            "sensitivity_ceiling",
            "surface",
            "requests_per_minute",
            "state",
            "created_at",
            "expires_at",
            "revoked_at",
            "last_used_at",
        ]

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        grantor = _grantor(request)
        most = OriginTrust.SYSTEM if is_superuser(request) else grantor.max_origin_trust
        fields: dict[str, Any] = {
            "name": forms.CharField(
                max_length=200, required=False, help_text="For you to tell keys apart."
            )
        }
        if not operated_tenant(request):
            fields["tenant_id"] = forms.CharField(label="Tenant", max_length=100)
        form: Any = type("NewApiKeyForm", (ApiKeyForm,), fields)
        form.base_fields["max_origin_trust"].choices = [
            (str(trust), str(trust)) for trust in OriginTrust if trust.at_most(most)
        ]
        form.base_fields["scopes"].choices = [
            (scope.value, scope.value) for scope in Scope if scope in grantor.scopes
        ]
        form.base_fields["sensitivity_ceiling"].choices = vocabulary_choices(Sensitivity)
        return form

    def add_view(
        self,
        request: HttpRequest,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        # Every way of saving leads to the one page that shows the key.
        plain = {"show_save_and_add_another": False, "show_save_and_continue": False}
        return super().add_view(request, form_url, plain | (extra_context or {}))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        asked = form.cleaned_data
        tenant = operated_tenant(request) or asked["tenant_id"]
        issued, obj.plain_text = ApiKey.issue(
            tenant_id=operator_principal(request, tenant).tenant_id,
            principal_id=asked["principal_id"],
            scopes=[Scope(scope) for scope in asked["scopes"]],
            projects=None if asked["all_projects"] else asked["projects"],
            max_origin_trust=OriginTrust(asked["max_origin_trust"]),
            sensitivity_ceiling=Sensitivity(asked["sensitivity_ceiling"]),
            name=asked["name"],
            expires_at=asked["expires_at"],
            requests_per_minute=asked["requests_per_minute"],
            issued_by=operator_name(request),
        )
        # The row that the rest of the admin speaks of is the one that was issued.
        obj.__dict__.update(
            {field.attname: getattr(issued, field.attname) for field in self.opts.fields}
        )

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Shows the key in the answer to the form itself, so that it is written down nowhere."""
        context = {"title": "API key created", "key": obj, "plain_text": obj.plain_text}
        response = self.rendered(request, "admin/access/apikey/issued.html", context)
        response["Cache-Control"] = "no-store"
        return response

    def get_urls(self) -> list[URLPattern]:
        revoke = self.admin_site.admin_view(require_POST(self.revoke_view))
        return [
            path("<path:object_id>/revoke/", revoke, name="access_apikey_revoke"),
            *super().get_urls(),
        ]

    def revoke_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        key = self.found(request, object_id)
        if not self.has_revoke_permission(request):
            raise PermissionDenied
        self._revoke(request, ApiKey.objects.filter(pk=key.pk))
        return HttpResponseRedirect(reverse("admin:access_apikey_change", args=[key.pk]))

    @admin.action(description="Revoke selected API keys", permissions=["revoke"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        self._revoke(request, queryset)

    def _revoke(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        keys = ApiKey.revoke(
            ApiKey.objects.filter(pk__in=queryset.values("pk")), revoked_by=operator_name(request)
        )
        for key in keys:
            self.log_change(request, key, "Revoked.")
        if keys:
            names = ", ".join(str(key) for key in keys)
            self.message_user(request, f"Revoked: {names}.", messages.SUCCESS)
        else:
            self.message_user(request, "Nothing to revoke.", messages.WARNING)


def _grantor(request: HttpRequest) -> Principal:
    """Whose trust and scopes a new key may have at most: nobody hands out more than they have."""
    user = str(request.user)
    return Principal.for_operator("-", user, permissions_of(request))


admin.site.unregister(Group)
admin.site.unregister(User)


_MAY = {
    OperatorPermission.VIEW: "view: read all that the tenant has",
    OperatorPermission.MANAGE: "manage: upload, retitle, rescope, hold, try again; keys, policies",
    OperatorPermission.DELETE: "delete: remove documents for good",
    OperatorPermission.RELEASE: "release: decide on quarantined passages",
    OperatorPermission.APPROVE: "approve: decide on what agents propose to keep",
}


class OperatorForm(forms.ModelForm):  # type: ignore[type-arg]
    permissions = forms.MultipleChoiceField(
        choices=[(permission.value, words) for permission, words in _MAY.items()],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        label="May",
        help_text="Every operator may view.",
    )

    class Meta:
        model = Operator
        fields = ("user", "tenant_id", "permissions")

    def clean_permissions(self) -> list[str]:
        chosen = {*self.cleaned_data["permissions"], OperatorPermission.VIEW.value}
        return [permission.value for permission in OperatorPermission if permission in chosen]


class OperatorInline(_StackedInline):
    model = Operator
    form = OperatorForm
    verbose_name = "tenant"
    verbose_name_plural = "The tenant that this user looks after"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)


_Standing = tuple[str, dict[str, Any]]


def _standing(user: User) -> _Standing | None:
    """The tenant that a user looks after, and what the event log says of how they do."""
    operator = Operator.objects.filter(user=user).first()
    if operator is None:
        return None
    named = Principal.for_operator(operator.tenant_id, user.get_username()).principal_id
    return operator.tenant_id, {
        "operator": named,
        "permissions": list(operator.permissions),
        "signs_in": user.is_active and user.is_staff,
    }


def _tell(request: HttpRequest, before: _Standing | None, after: _Standing | None) -> None:
    """Puts a change of who looks after a tenant on that tenant's record."""
    actor = operator_name(request)
    moved = before is not None and after is not None and before[0] != after[0]
    if before is not None and (after is None or moved):
        audit.record(audit.OPERATOR_REMOVED, before[0], actor=actor, data=before[1])
    if after is not None and (before is None or moved):
        audit.record(audit.OPERATOR_ADDED, after[0], actor=actor, data=after[1])
    elif before is not None and after is not None and before != after:
        data = {**after[1], "before": before[1]}
        audit.record(audit.OPERATOR_CHANGED, after[0], actor=actor, data=data)


@admin.register(User)
class StaffAdmin(SuperuserOnly, UserAdmin):  # type: ignore[type-arg]
    """Users without groups and permission rows, which nothing here reads."""

    inlines = (OperatorInline,)
    list_display = ("username", "email", "is_active", "is_staff", "is_superuser", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser")
    filter_horizontal = ()
    show_full_result_count = False
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("May", {"fields": ("is_active", "is_staff", "is_superuser")}),
        ("When", {"fields": ("last_login", "date_joined")}),
    )
    readonly_fields = ("last_login", "date_joined")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.standing_before = _standing(User.objects.get(pk=obj.pk)) if change else None
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        _tell(request, form.instance.standing_before, _standing(form.instance))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        _tell(request, _standing(obj), None)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for user in queryset:
            _tell(request, _standing(user), None)
        super().delete_queryset(request, queryset)

    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002 - Django's name
        form_url: str = "",
    ) -> HttpResponse:
        if not is_superuser(request):
            raise Http404
        response: HttpResponse = super().user_change_password(request, id, form_url)
        if request.method == "POST" and response.status_code == HTTPStatus.FOUND:
            user = User.objects.filter(pk=unquote(id)).first()
            standing = _standing(user) if user is not None else None
            if standing is not None:
                tenant, data = standing
                changed = {**data, "changed": "password"}
                audit.record(
                    audit.OPERATOR_CHANGED, tenant, actor=operator_name(request), data=changed
                )
        return response


@admin.register(Operator)
class OperatorMembershipAdmin(SuperuserOnly):
    form = OperatorForm
    list_display = ("user", "tenant_id", "may")
    list_select_related = ("user",)
    search_fields = ("user__username", "tenant_id")
    show_full_result_count = False

    @admin.display(description="may")
    def may(self, operator: Operator) -> str:
        return ", ".join(operator.permissions)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        former = Operator.objects.select_related("user").get(pk=obj.pk) if change else None
        before = _standing(former.user) if former else None
        super().save_model(request, obj, form, change)
        if former is not None and former.user_id != obj.user_id:
            _tell(request, before, None)
            before = None
        _tell(request, before, _standing(obj.user))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        _tell(request, _standing(obj.user), None)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        for operator in queryset.select_related("user"):
            _tell(request, _standing(operator.user), None)
        super().delete_queryset(request, queryset)
