"""What every list and page of the admin has in common.

Who may see rows follows from who is signed in and not from rows of `auth_permission`, so that
a fresh operator can work; which rows they are is row-level security's business.
"""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.paginator import Paginator
from django.db.models import Model, Q, QuerySet
from django.db.models.options import Options
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from access.errors import VerbatimError
from access.operator_session import (
    is_operator,
    is_superuser,
    may,
    operated_tenant,
    operator_principal,
)
from access.principal import Principal
from access.trust import OperatorPermission

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator


_SEARCHED_WORDS = 8
_SEARCHED_CHARACTERS = 200


def searched_words(search_term: str) -> list[str]:
    """The words that a search looks for: more would only make its statement longer."""
    return search_term[:_SEARCHED_CHARACTERS].split()[:_SEARCHED_WORDS]


def breakable(name: str) -> SafeString:
    """A long name in capitals, for a narrow column: it may break where its parts meet."""
    return format_html_join(mark_safe("_<wbr>"), "{}", ((part,) for part in name.split("_")))


class BoundedPaginator(_Paginator):
    """Counts no further than `LIMIT` rows: a list that long is searched, not paged through."""

    LIMIT = 10_000

    @cached_property
    def count(self) -> int:
        # Without an order the count needs no sort.
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[: self.LIMIT].count()

    @property
    def cut_off(self) -> bool:
        return self.count >= self.LIMIT


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


class OperatorAdmin(_ModelAdmin):
    """Rows that an operator may look at and, unless a subclass says so, not touch."""

    paginator = BoundedPaginator
    list_per_page = 50
    list_max_show_all = 50
    show_full_result_count = False
    # Counting every choice of every filter reads the whole table.
    show_facets = admin.ShowFacets.NEVER
    actions_on_top = True

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_operator(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_operator(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_list_display(self, request: HttpRequest) -> Any:
        shown = super().get_list_display(request)
        return [*shown, "tenant_id"] if is_superuser(request) else shown

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        words = " ".join(searched_words(search_term))
        return super().get_search_results(request, queryset, words)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        # PostgreSQL has no NUL in a text, so nothing matches one; Django says so for `q` alone.
        if any("\x00" in value for name in request.GET for value in request.GET.getlist(name)):
            return HttpResponseRedirect(request.path)
        for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
            self._require_possible_id(value)
        title = capfirst(self.opts.verbose_name_plural)
        return super().changelist_view(request, {"title": title, **(extra_context or {})})

    def found(self, request: HttpRequest, object_id: str) -> Any:
        """The object; 404 for another tenant's exactly as for one that never was."""
        obj = self.get_object(request, unquote(object_id))
        if obj is None or not self.has_view_permission(request, obj):
            raise Http404
        return obj

    def rendered(
        self, request: HttpRequest, template: str, context: dict[str, Any]
    ) -> HttpResponse:
        """A page of ours about these rows, in the frame of the admin."""
        frame = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "all_tenants": is_superuser(request),
        }
        return TemplateResponse(request, template, frame | context)

    def acted(
        self, request: HttpRequest, tenant_id: str, act: Callable[[Principal], str], *, then: str
    ) -> HttpResponse:
        """Does it as the operator, tells what `act` says of it or why not, and goes on to `then`."""
        try:
            said = act(operator_principal(request, tenant_id))
        except VerbatimError as refused:
            self.message_user(request, f"Not done. {refused.detail}", messages.ERROR)
        else:
            self.message_user(request, said, messages.SUCCESS)
        return HttpResponseRedirect(then)

    # What may not be seen is not there, whatever else may not be done with it.

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        self.found(request, object_id)
        return super().change_view(request, object_id, form_url, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.found(request, object_id)
        return super().delete_view(request, object_id, extra_context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.found(request, object_id)
        return super().history_view(request, object_id, extra_context)

    def _require_possible_id(self, value: str) -> None:
        try:
            if "\x00" in value:
                raise Http404
            self.opts.pk.to_python(value)
        except ValidationError as impossible:
            raise Http404 from impossible

    def _get_obj_does_not_exist_redirect(
        self,
        request: HttpRequest,
        opts: Options[Model],
        object_id: str,
    ) -> HttpResponse:
        # Django would go to the index and repeat the id there; nothing is to be learned here.
        raise Http404


class ReadOnlyPage(OperatorAdmin):
    """A page of ours for each row, to be looked at; what changes a row has a view of its own.

    `page` is the template, and `context` what it shows, its title included.
    """

    page: str

    def context(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"title": str(row)}

    def visited(self, request: HttpRequest, row: Any) -> None:
        """Somebody is about to look at it."""

    def shown(self, request: HttpRequest, row: Any, **more: Any) -> HttpResponse:
        """The page; `more` says otherwise than `context`, as of a form that was filled in."""
        return self.rendered(request, self.page, self.context(request, row) | more)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.found(request, object_id)
        if request.method not in {"GET", "HEAD"}:
            raise PermissionDenied
        self.visited(request, row)
        return self.shown(request, row)


class SearchedByKey(OperatorAdmin):
    """A list that is searched for whole ids and names, which an index answers.

    `searched_ids` are fields of UUIDs, `searched_names` fields of text.
    """

    searched_ids: tuple[str, ...] = ()
    searched_names: tuple[str, ...] = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        sought: list[tuple[tuple[str, ...], Any]] = [(self.searched_names, term)]
        if (known := as_uuid(term)) is not None:
            sought.append((self.searched_ids, known))
        conditions = Q()
        for fields, value in sought:
            for field in fields:
                conditions |= Q(**{field: value})
        return queryset.filter(conditions), False


class OneForEachTenant(OperatorAdmin):
    """A setting of a tenant, as a form: a row of each tenant that ever set it.

    Whoever may manage the tenant changes it; a superuser says whose it is. `saved` makes the row.
    """

    def saved(self, form: Any, operator: Principal) -> Model:
        """Writes what the form says, as the operator; returns the row. To be overridden."""
        raise NotImplementedError

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Once a tenant has the row it is changed, not added to."""
        known = f"_tenant_has_{self.opts.label_lower}"
        if not hasattr(request, known):  # the menu of every page asks more than once
            tenant = operated_tenant(request)
            there = tenant is not None and self.model.objects.exists()
            setattr(request, known, there)
        return may(request, OperatorPermission.MANAGE) and not getattr(request, known)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may(request, OperatorPermission.MANAGE)

    def get_list_display(self, request: HttpRequest) -> Any:
        return self.list_display

    @admin.display(description="tenant", ordering="tenant_id")
    def tenant(self, row: Any) -> str:
        return str(row.tenant_id)

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is not None or operated_tenant(request):
            return self.form
        whose = {"tenant_id": forms.CharField(label="Tenant", max_length=100)}
        return type(f"New{self.form.__name__}", (self.form,), whose)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = list(self.get_form(request, obj)().fields)
        return sorted(fields, key=lambda name: name != "tenant_id")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        tenant = obj.tenant_id if change else operated_tenant(request)
        tenant = tenant or form.cleaned_data["tenant_id"]
        saved = self.saved(form, operator_principal(request, tenant))
        # The row that the rest of the admin speaks of is the one that was saved.
        obj.__dict__.update(
            {field.attname: getattr(saved, field.attname) for field in self.opts.fields}
        )


class SuperuserOnly(_ModelAdmin):
    """Rows that only a superuser sees and changes."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_superuser(request)

    # To everybody else none of these rows exists.

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        _require_superuser(request)
        return super().change_view(request, object_id, form_url, extra_context)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        _require_superuser(request)
        return super().delete_view(request, object_id, extra_context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        _require_superuser(request)
        return super().history_view(request, object_id, extra_context)


def _require_superuser(request: HttpRequest) -> None:
    if not is_superuser(request):
        raise Http404
