"""No list of the admin loses a column beside the menu and the filters, however long a name is."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Page

from tests.admin_world import addresses, one_of_everything

pytestmark = [
    pytest.mark.long,
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("blob_root"),
]

_LONG = "quarterly-reconciliation-of-the-billing-agent"
_CUT = """() => [...document.querySelectorAll('.results, .scroll')]
    .filter(each => each.scrollWidth > each.clientWidth).length"""
_OVERFLOWS = "() => document.documentElement.scrollWidth > innerWidth"


def test_every_list_shows_all_its_columns(page: Page, client: Client, live_server: Any) -> None:
    one_of_everything("acme", _LONG)
    # A superuser's lists have a column more.
    client.force_login(User.objects.create_superuser("root"))
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": str(live_server)}]
    )
    lists = [address for address in addresses() if address.name.endswith("_changelist")]
    cut, overflowing = [], []
    for address in lists:
        page.set_viewport_size({"width": 1280, "height": 900})
        answer = page.goto(f"{live_server}{address.path()}")
        assert answer is not None
        assert answer.status == 200, address
        if page.evaluate(_CUT):
            cut.append(address.name)
        page.set_viewport_size({"width": 390, "height": 900})
        if page.evaluate(_OVERFLOWS):
            overflowing.append(address.name)
    assert (cut, overflowing) == ([], [])
