"""The Content-Security-Policy of every page (Django 5.2 has none of its own)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

_OWN: dict[str, str] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
# The API page sets style attributes and draws its icons from data addresses.
_DOCS = _OWN | {"style-src": "'self' 'unsafe-inline'", "img-src": "'self' data:"}


def _header(policy: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in policy.items())


_OWN_HEADER, _DOCS_HEADER = _header(_OWN), _header(_DOCS)


class ContentSecurityPolicyMiddleware(MiddlewareMixin):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> Any:
        docs = request.path.startswith("/docs/")
        response.headers.setdefault(
            "Content-Security-Policy", _DOCS_HEADER if docs else _OWN_HEADER
        )
        response.headers.setdefault(
            "Permissions-Policy", "camera=(), geolocation=(), microphone=()"
        )
        return response
