"""`python -m config.probe [/readyz]`: asks the web process of this machine, for health checks.

Exits with 0 when it answers 200. It needs nothing but the variables that the web process has: the
request names the public host, for others are refused.
"""

from __future__ import annotations

import http.client
import os
import sys
from urllib.parse import urlsplit

_PATIENCE_SECONDS = 5


def answers(path: str) -> bool:
    """Whether the web process at PORT says 200 to a `GET`."""
    port = int(os.environ.get("PORT", "").strip() or 8000)
    public = urlsplit(os.environ.get("VERBATIM_PUBLIC_URL", "").strip()).hostname or "localhost"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers={"Host": public})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if answers(sys.argv[1] if sys.argv[1:] else "/livez") else 1)
