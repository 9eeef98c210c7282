"""API key to principal, for Django REST framework."""

from __future__ import annotations

from dataclasses import dataclass

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.request import Request

from access.errors import NotAuthenticated
from access.models import ApiKey
from access.principal import Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """What REST framework calls the user of a request that bears a key."""

    principal: Principal
    is_authenticated: bool = True
    is_active: bool = True


def principal_of(request: Request) -> Principal:
    """The caller of an authenticated request; raises `NotAuthenticated` when there is none."""
    if not isinstance(request.auth, Principal):
        raise NotAuthenticated
    return request.auth


class ApiKeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer vk_<prefix>_<secret>`."""

    def authenticate(self, request: Request) -> tuple[Caller, Principal] | None:
        scheme, _, presented = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        principal = ApiKey.authenticate(presented.strip())
        if principal is None:
            raise NotAuthenticated("The API key is unknown, expired or revoked.")
        return Caller(principal), principal

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002 - the framework's shape
        return 'Bearer realm="verbatim"'


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the API description speaks of a key."""

    target_class = ApiKeyAuthentication
    name = "ApiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:  # noqa: ARG002
        return {"type": "http", "scheme": "bearer", "bearerFormat": "vk_<prefix>_<secret>"}
