"""Links to the citation page that a search hands out.

A link lets its bearer see one passage and its metadata, as the key that searched could see it:
the signature carries the key's prefix, the project and a date, and the key and its scope are
looked up anew when the link is opened. A bare chunk id opens nothing.
"""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

from django.conf import settings
from django.core import signing

from access.models import ApiKey
from access.principal import Principal

_SALT = "verbatim.citation"


def citation_link(chunk_id: str, principal: Principal, current_scope: str | None) -> str:
    """The address of a citation; signed when a key vouches for the caller."""
    address = f"{settings.VERBATIM_PUBLIC_URL}/c/{chunk_id}"
    if not principal.key_prefix:
        return address
    signed = signing.dumps(
        {"c": chunk_id, "k": principal.key_prefix, "p": current_scope}, salt=_SALT, compress=True
    )
    return f"{address}?{urlencode({'s': signed})}"


def open_link(chunk_id: str, signature: str) -> tuple[Principal, str | None] | None:
    """Who may look, and in which project; `None` when forged, for another id, expired or revoked."""
    age = timedelta(days=settings.CITATION_LINK_DAYS)
    try:
        signed = signing.loads(signature, salt=_SALT, max_age=age)
    except signing.BadSignature:
        return None
    if signed["c"] != chunk_id:
        return None
    principal = ApiKey.principal_of(signed["k"])
    return (principal, signed["p"]) if principal else None
