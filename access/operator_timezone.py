"""Times on the pages for people in the zone of whoever looks at them, as their browser says."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable
from functools import cache

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone

COOKIE = "verbatim_zone"
"""Set by `verbatim/zone.js`. It chooses how times are written and nothing else."""
_PAGES = ("/admin/", "/c/")


class OperatorTimezoneMiddleware:
    """Pages alone: what programs read is in UTC, whatever cookie they send."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        zone = request.COOKIES.get(COOKIE, "") if request.path.startswith(_PAGES) else ""
        if zone not in _known_zones():
            return self._get_response(request)
        with timezone.override(zoneinfo.ZoneInfo(zone)):
            return self._get_response(request)


@cache
def _known_zones() -> frozenset[str]:
    """A name is looked up only when it is one: a zone's name is also a path to its file."""
    return frozenset(zoneinfo.available_timezones())
