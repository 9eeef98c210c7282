"""Filters of lists that are fields of one form: a choice, a word, a range of days."""

# ruff: noqa: ARG002 - the signatures are Django's
from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone

_LONGEST_WORD = 500


class FormFilter(admin.ListFilter):
    """A filter whose template is a field; the list's template has the form around all of them.

    `names` are the parameters of the address that it reads.
    """

    names: ClassVar[tuple[str, ...]]

    def __init__(
        self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any
    ) -> None:
        super().__init__(request, params, model, model_admin)
        for name in self.names:
            if (given := params.pop(name, None)) and given[-1]:
                self.used_parameters[name] = given[-1][:_LONGEST_WORD]

    def expected_parameters(self) -> list[str | None]:
        return list(self.names)

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        return iter(())

    @property
    def value(self) -> str:
        return str(self.used_parameters.get(self.names[0], ""))


class ChoiceFilter(FormFilter):
    """One of a few words; `conditions` gives each word its condition."""

    template = "admin/filters/choice.html"
    conditions: ClassVar[dict[str, tuple[str, Q]]]

    @property
    def offered(self) -> Sequence[tuple[str, str]]:
        return [(word, label) for word, (label, _) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value:
            return queryset
        if self.value not in self.conditions:
            raise IncorrectLookupParameters
        return queryset.filter(self.conditions[self.value][1])


class WordFilter(FormFilter):
    """A whole name or id that is typed in. There may be too many to choose from."""

    template = "admin/filters/word.html"
    field: ClassVar[str]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.field: self.value}) if self.value else queryset


class TenantFilter(WordFilter):
    """For who sees more than one."""

    title = "tenant"
    names = ("tenant",)
    field = "tenant_id"


class SurfaceFilter(WordFilter):
    title = "surface"
    names = ("surface",)
    field = "surface"


class DayFilter(FormFilter):
    """From one day to another, both included, in the viewer's zone."""

    template = "admin/filters/days.html"
    field: ClassVar[str]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since, until = (self._day(name) for name in self.names)
        if since is not None:
            queryset = queryset.filter(**{f"{self.field}__gte": _midnight(since)})
        if until is not None:
            end = _midnight(until + timedelta(days=1))
            queryset = queryset.filter(**{f"{self.field}__lt": end})
        return queryset

    @property
    def fields(self) -> list[tuple[str, str, str]]:
        labels = ("from", "to")
        return [
            (label, name, str(self.used_parameters.get(name, "")))
            for label, name in zip(labels, self.names, strict=True)
        ]

    def _day(self, name: str) -> date | None:
        given = str(self.used_parameters.get(name, ""))
        if not given:
            return None
        try:
            day = date.fromisoformat(given)
            _midnight(day + timedelta(days=1))  # the last day of the calendar has no end
        except (ValueError, OverflowError) as wrong:
            raise IncorrectLookupParameters from wrong
        return day


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time()))
