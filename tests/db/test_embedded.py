"""The embedded services: real processes, in folders of their own."""

from __future__ import annotations

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db


def test_the_application_cannot_bypass_row_level_security() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user")
        assert cursor.fetchone() == (False, False)


def test_a_test_database_has_the_extensions() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extname FROM pg_extension WHERE extname IN ('vector', 'btree_gin')")
        assert {name for (name,) in cursor.fetchall()} == {"vector", "btree_gin"}
