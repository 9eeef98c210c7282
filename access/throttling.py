"""How many requests a key may make in a minute, counted where every process counts."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

import redis
from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from access.principal import Principal

if TYPE_CHECKING:  # its own import would be circular: views read the settings that name us
    from rest_framework.views import APIView

logger = logging.getLogger(__name__)
_WINDOW_SECONDS: Final = 60


def seconds_to_wait(principal: Principal) -> int:
    """Counts one request of the principal's key: 0 when it is within the limit, else the time
    after which the key may ask again.

    By the clock's minutes. A count that cannot be kept refuses nobody: the limit protects the
    installation, and a cache that is away is no reason to close it.
    """
    limit = principal.requests_per_minute
    if limit is None:
        limit = settings.RATE_LIMIT_PER_MINUTE
    if not limit or not principal.key_prefix:
        return 0
    now = time.time()
    window, passed = divmod(now, _WINDOW_SECONDS)
    name = f"requests:{principal.key_prefix}:{int(window)}"
    try:
        cache.add(name, 0, timeout=2 * _WINDOW_SECONDS)
        made = cache.incr(name)
    except (redis.RedisError, ValueError) as error:  # ValueError: evicted in between
        logger.warning("rate_limit_unknown", extra={"error": type(error).__name__})
        return 0
    return 0 if made <= limit else max(1, round(_WINDOW_SECONDS - passed))


class KeyThrottle(BaseThrottle):
    """REST framework's way of asking; what is over the limit is answered 429 with Retry-After."""

    _wait = 0

    def allow_request(self, request: Request, view: APIView) -> bool:  # noqa: ARG002
        principal: Any = request.auth
        self._wait = seconds_to_wait(principal) if isinstance(principal, Principal) else 0
        return self._wait == 0

    def wait(self) -> float | None:
        return self._wait
