"""A small team's documents, and the tenant, key and operator to try them with."""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import call_command

from access.models import ApiKey, Operator
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission, OriginTrust, Scope, Sensitivity

TENANT, PRINCIPAL, OPERATOR = "demo", "alice", "operator"
DOCUMENTS = Path(__file__).parent / "documents"
QUESTIONS = Path(__file__).parent / "questions.json"
_MANAGED_APPS = ("access", "artifacts", "knowledge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What a newcomer needs to try the installation; the only place that keeps these secrets."""

    api_key: str
    password: str

    def described(self, url: str) -> dict[str, Any]:
        return {
            "url": f"{url}/",
            "docs_url": f"{url}/docs/",
            "tenant": TENANT,
            "principal": PRINCIPAL,
            "api_key": self.api_key,
            "admin": {
                "url": f"{url}/admin/",
                "username": OPERATOR,
                "password": self.password,
            },
        }


def path() -> Path:
    return Path(settings.VAR) / "demo.json"


def prepare(tell: Callable[[str], None]) -> Demo | None:
    """The demo of this installation: made when the database is empty, else as it was made.

    `None` when the database holds somebody's own data.
    """
    known = _known()
    if known is not None:
        return known
    user = get_user_model().objects.filter(username=OPERATOR).first()
    with tenant_session(TENANT):
        half_made = user is not None and Operator.objects.filter(user=user).exists()
    if not (half_made and settings.EMBEDDED_POSTGRES) and not _is_empty():
        return None
    demo = _accounts()
    _admit(tell)
    return demo


def keep(demo: Demo, url: str) -> None:
    """Write down what was printed, for people and programs on this machine, and only for us."""
    aside = path().with_suffix(".new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(demo.described(url), file, indent=2)
        file.write("\n")
    aside.replace(path())


def first_question() -> str:
    return str(json.loads(QUESTIONS.read_text())[0]["question"])


def _known() -> Demo | None:
    """What an earlier start wrote down, if the database still knows the key."""
    try:
        kept = json.loads(path().read_text())
        demo = Demo(api_key=kept["api_key"], password=kept["admin"]["password"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return demo if ApiKey.authenticate(demo.api_key) else None


def _is_empty() -> bool:
    if get_user_model().objects.exists():
        return False
    with operations_session():
        return not any(
            apps.get_model(label).objects.exists()
            for label in ("access.ApiKey", "artifacts.Artifact", "knowledge.Document")
        )


def _accounts() -> Demo:
    password = secrets.token_urlsafe(12)
    with tenant_session(TENANT):
        user, _ = get_user_model().objects.get_or_create(username=OPERATOR)
        user.is_staff, user.is_active = True, True
        user.set_password(password)
        user.save()
        user.user_permissions.set(
            Permission.objects.filter(content_type__app_label__in=_MANAGED_APPS)
        )
        Operator.objects.update_or_create(
            user=user,
            defaults={
                "tenant_id": TENANT,
                "permissions": [str(permission) for permission in OperatorPermission],
            },
        )
    _, api_key = ApiKey.issue(
        tenant_id=TENANT,
        principal_id=PRINCIPAL,
        name="demo",
        scopes=[Scope.WRITE],
        projects=None,
        max_origin_trust=OriginTrust.USER,
        sensitivity_ceiling=Sensitivity.RESTRICTED,
    )
    return Demo(api_key=api_key, password=password)


def _admit(tell: Callable[[str], None]) -> None:
    out = io.StringIO()
    call_command(
        "ingest",
        str(DOCUMENTS),
        tenant=TENANT,
        principal=PRINCIPAL,
        visibility="tenant",
        json=True,
        stdout=out,
    )
    for line in out.getvalue().splitlines():
        admitted = json.loads(line)
        report = admitted["report"]
        tell(f"  {Path(admitted['path']).name}: {report['chunks']} chunks")
