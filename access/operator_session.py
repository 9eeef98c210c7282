"""The database session of the admin: an operator's request sees one tenant, a superuser's all.

Anybody else's request is bound to nothing, so row-level security shows it no row.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from access.errors import Forbidden
from access.models import Operator
from access.principal import ALL_PERMISSIONS, Principal
from access.tenancy import operations_session, tenant_session
from access.trust import OperatorPermission

_MEMBERSHIP = "_operator_membership"
_FIRST_REFUSAL = 400


class OperatorSessionMiddleware:
    """Runs every request under the admin in the session of whoever is signed in.

    The view and the rendering of its template both happen inside; the bytes of a download are
    streamed after the session has ended and need none. A refused or failed request leaves no
    change behind.
    """

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith(reverse("admin:index")):
            return self._get_response(request)
        session = _session_of(request)
        if session is None:
            return self._get_response(request)
        try:
            with session:
                return self._answer(request)
        except _Undo as undone:
            return undone.response

    def _answer(self, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        # Django has turned an exception of the view into this response already.
        if response.status_code >= _FIRST_REFUSAL:
            raise _Undo(response)
        return response


def staff_member(request: HttpRequest) -> User | None:
    """The signed-in user, when they are one that the admin lets in."""
    user: AbstractBaseUser | AnonymousUser = request.user
    if isinstance(user, User) and user.is_active and user.is_staff:
        return user
    return None


def is_superuser(request: HttpRequest) -> bool:
    user = staff_member(request)
    return user is not None and user.is_superuser


def operated_tenant(request: HttpRequest) -> str | None:
    """The one tenant that the signed-in staff member looks after; `None` when there is none."""
    membership = _membership(request)
    return membership.tenant_id if membership else None


def permissions_of(request: HttpRequest) -> frozenset[OperatorPermission]:
    """What the signed-in staff member may do; a superuser everything."""
    if is_superuser(request):
        return ALL_PERMISSIONS
    membership = _membership(request)
    return frozenset(map(OperatorPermission, membership.permissions)) if membership else frozenset()


def may(request: HttpRequest, permission: OperatorPermission) -> bool:
    """Whether the request may do what the permission names; every page and action asks this."""
    return permission in permissions_of(request)


def operator_name(request: HttpRequest) -> str:
    """How events call the signed-in staff member."""
    user = staff_member(request)
    if user is None:
        raise Forbidden("Only an operator of the tenant may do this.")
    return Principal.for_operator("-", user.get_username()).principal_id


def is_operator(request: HttpRequest) -> bool:
    """Whether the request may see rows in the admin: an operator's or a superuser's."""
    return may(request, OperatorPermission.VIEW)


def operator_principal(request: HttpRequest, tenant_id: str | None = None) -> Principal:
    """The caller that the store sees. A superuser acts in the tenant of what they act on."""
    user = staff_member(request)
    tenant = tenant_id if is_superuser(request) and tenant_id else operated_tenant(request)
    if user is None or not tenant or tenant_id not in {None, tenant}:
        raise Forbidden("Only an operator of the tenant may do this.")
    return Principal.for_operator(tenant, user.get_username(), permissions_of(request))


def session_maker(request: HttpRequest) -> Callable[[], AbstractContextManager[None]]:
    """Makes sessions like the request's own, for what is written after that has ended."""
    if is_superuser(request):
        return operations_session
    tenant = operated_tenant(request)
    if not tenant:
        raise Forbidden("Only an operator of the tenant may do this.")
    return partial(tenant_session, tenant)


def _session_of(request: HttpRequest) -> AbstractContextManager[None] | None:
    return session_maker(request)() if is_operator(request) else None


def _membership(request: HttpRequest) -> Operator | None:
    """The row that says so, looked up once a request."""
    if not hasattr(request, _MEMBERSHIP):
        user = staff_member(request)
        found = None
        if user is not None:
            # The row that names the tenant is itself under row-level security.
            with operations_session():
                found = Operator.objects.filter(user=user).first()
        setattr(request, _MEMBERSHIP, found)
    membership: Operator | None = getattr(request, _MEMBERSHIP)
    return membership


class _Undo(Exception):  # never leaves this module
    """Ends the session without keeping what it wrote."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response
        super().__init__()
