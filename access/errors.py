"""The root of the one error tree, and the errors of who is calling.

Every refusal a caller can meet is a `VerbatimError`. Its `code` is stable and
machine-readable, its `status` is the HTTP status, its docstring is the title a
person reads, and `detail` says what to do about it. No error carries text of a
document, a secret or an internal.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, ClassVar


class VerbatimError(Exception):
    """The request could not be carried out."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 400
    # The JSON Schema of each member that a problem of this code has beside the common ones.
    own_members: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, detail: str = "", **members: Any) -> None:
        self.detail = detail or self.meaning()
        self.members = members
        super().__init__(self.detail)

    @classmethod
    def meaning(cls) -> str:
        """What the code stands for, in a sentence."""
        return (cls.__doc__ or cls.code).strip().splitlines()[0]

    def problem(self) -> dict[str, Any]:
        """The members of an RFC 9457 problem, without the HTTP envelope."""
        return {
            "type": f"urn:verbatim:problem:{self.code}",
            "title": self.meaning(),
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.members,
        }


class Malformed(VerbatimError):
    """The request is malformed."""

    code = "malformed"
    own_members: ClassVar[Mapping[str, Any]] = {
        "fields": {
            "type": "array",
            "description": "Of `malformed`: which members, and what is wrong with each.",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                "required": ["field", "message"],
            },
        }
    }


class NotAuthenticated(VerbatimError):
    """A valid API key is needed."""

    code = "not_authenticated"
    status = 401


class Forbidden(VerbatimError):
    """The caller may not do this."""

    code = "forbidden"
    status = 403


class ScopeMissing(Forbidden):
    """The API key lacks the scope that this needs."""

    code = "scope_missing"


class ProjectForbidden(Forbidden):
    """The API key may not name this project."""

    code = "project_forbidden"


class NotFound(VerbatimError):
    """Nothing here by that name.

    Also the answer for what exists and the caller may not see, so the detail never varies.
    """

    code = "not_found"
    status = 404

    def __init__(self) -> None:
        super().__init__("There is nothing by that name that you may see.")


class Unavailable(VerbatimError):
    """A service that this needs cannot be reached right now; try again shortly."""

    code = "unavailable"
    status = 503


class Internal(VerbatimError):
    """Something went wrong here; the request changed nothing."""

    code = "internal"
    status = 500


def kind_and_place(error: Exception) -> dict[str, Any]:
    """What may be logged of an error nobody expected; never its message: messages quote data."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    return {
        "error": type(error).__name__,
        "stack": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
