"""How many statements and how long each page of the admin takes over a corpus of some size.

The pages are found by following links as an operator does: every list, what its filters and
columns offer, its second page, its search, and the page of its first row.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse
from lxml import html

from access.models import Operator
from access.tenancy import operations_session
from access.trust import OperatorPermission
from knowledge.evaluation.bench import spread_of
from knowledge.evaluation.progress import Track

MOST_QUERIES: Final = 15
_APPS: Final = ("knowledge", "artifacts", "access")
_NOWHERE: Final = "zzzznowhere"
_CHOICES: Final = (
    "//*[@id='changelist-filter']//a[@href] | //th[contains(@class, 'sortable')]//a[@href]"
)
_OPTIONS: Final = "//*[@id='changelist-filter']//select[@name]/option[@value != '']"
_ROWS: Final = "//*[@id='result_list']/tbody//a[@href]"
_FIRST_REFUSAL: Final = 400
_SLOW_MS: Final = 100.0


@dataclass(slots=True)
class Statements:
    """What one page asked of the database: how often, and which statements took long."""

    count: int = 0
    slow: list[str] = field(default_factory=list)

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        started = time.perf_counter()
        try:
            return execute(sql, params, many, context)
        finally:
            self.count += 1
            milliseconds = (time.perf_counter() - started) * 1_000
            if milliseconds > _SLOW_MS:
                self.slow.append(f"{milliseconds:.0f} ms  {' '.join(sql.split())[:200]}")


def bench_admin(tenant_id: str, track: Track, *, visits: int = 3) -> dict[str, Any]:
    """Visits every page once unmeasured, and then so often; the count is the last visit's."""
    call_command("collectstatic", interactive=False, verbosity=0)
    with _operator(tenant_id) as client:
        pages = dict(_pages(client))
        told = [
            _measured(client, name, address, visits)
            for name, address in track(pages.items(), "pages", len(pages))
        ]
    return {
        "tenant": tenant_id,
        "rows": _row_counts(),
        "pages": told,
        "most_queries": max(page["queries"] for page in told),
        "slowest_ms": max(page["milliseconds"]["max"] for page in told),
        "above_query_limit": [p["page"] for p in told if p["queries"] > MOST_QUERIES],
        "refused": [p["page"] for p in told if p["status"] >= _FIRST_REFUSAL],
    }


@contextlib.contextmanager
def _operator(tenant_id: str) -> Iterator[Client]:
    """The browser of an operator of the tenant, who is gone afterwards."""
    user = get_user_model().objects.create_user(
        f"{tenant_id}-{secrets.token_hex(4)}", password=None, is_staff=True
    )
    try:
        with operations_session():
            Operator.objects.create(
                user=user, tenant_id=tenant_id, permissions=[str(one) for one in OperatorPermission]
            )
        own = urlsplit(settings.VERBATIM_PUBLIC_URL)
        client = Client(raise_request_exception=False, headers={"host": own.netloc})
        client.force_login(user)
        yield client
    finally:
        with operations_session():
            user.delete()


def _pages(client: Client) -> Iterator[tuple[str, str]]:
    yield "home", reverse("admin:index")
    for model, of in sorted(admin.site._registry.items(), key=lambda one: one[0].__name__):  # noqa: SLF001
        options = model._meta  # noqa: SLF001
        if options.app_label not in _APPS:
            continue
        name = str(options.verbose_name_plural)
        address = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
        answer = client.get(address)
        if answer.status_code >= _FIRST_REFUSAL:  # a superuser's
            continue
        page = html.fromstring(answer.content)
        yield name, address
        yield f"{name}, page 2", f"{address}?p=2"
        if of.search_fields or getattr(of, "searched_names", ()) or getattr(of, "searched_ids", ()):
            # A word that many rows have, and one that none has: both must be cheap.
            for word in (*_first_word(page), _NOWHERE):
                yield f"{name}, search {word}", f"{address}?{urlencode({'q': word})}"
        for link in page.xpath(_CHOICES):
            label = " ".join(link.text_content().split())
            if link.get("href") not in {"?", ""}:
                yield f"{name}, {label} ({link.get('href')})", address + link.get("href")
        for option in page.xpath(_OPTIONS):
            chosen = {option.getparent().get("name"): option.get("value")}
            yield f"{name}, {chosen}", f"{address}?{urlencode(chosen)}"
        row = page.xpath(_ROWS)
        if row:
            yield f"{name}, one", row[0].get("href")


def _first_word(page: Any) -> list[str]:
    """The longest word of the first row's link."""
    return [
        max(link.text_content().split(), key=len, default="-") for link in page.xpath(_ROWS)[:1]
    ]


def _measured(client: Client, name: str, address: str, visits: int) -> dict[str, Any]:
    milliseconds = []
    for _ in range(1 + visits):
        watch = Statements()
        started = time.perf_counter()
        with connection.execute_wrapper(watch):
            answer = client.get(address)
            size = len(answer.content)
        milliseconds.append((time.perf_counter() - started) * 1_000)
    return {
        "page": name,
        "address": address,
        "status": answer.status_code,
        "queries": watch.count,
        "milliseconds": spread_of(milliseconds[1:]),
        "bytes": size,
        "slow": watch.slow,
    }


def _row_counts() -> dict[str, int]:
    """Rows of every table, as the planner estimates them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reltuples::bigint FROM pg_class WHERE relkind = 'r'")
        estimated = dict(cursor.fetchall())
    return {
        model._meta.db_table: estimated.get(model._meta.db_table, 0)  # noqa: SLF001
        for name in _APPS
        for model in apps.get_app_config(name).get_models()
        if not model._meta.proxy  # noqa: SLF001
    }
