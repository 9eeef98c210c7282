"""What a search asks of the querysets that know who may read what, as SQL made once.

Django takes longer to write a statement of five joins than PostgreSQL takes to answer it. So the
queryset is built with marks for its values, and its SQL is kept for each shape of a scope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from django.db import DEFAULT_DB_ALIAS, connections, models

from knowledge.core.scope import ReadScope

# No text of the database holds a NUL and no instant of it is that early, so nothing else in a
# statement is taken for one of these.
_TENANT: Final = "\0tenant"
_PRINCIPAL: Final = "\0principal"
_PROJECT: Final = "\0project"
NUMBERS: Final = "\0numbers"
AS_OF: Final = datetime.min.replace(tzinfo=UTC)


class AnyOf(models.Lookup):
    """Equal to one of an array's values: one parameter, where `in` has one for each value."""

    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        column, params = self.process_lhs(compiler, connection)
        return f"{column} = ANY (%s)", [*params, self.rhs]


def shape_of(scope: ReadScope) -> ReadScope:
    """The scope with marks where its values were: the same for all callers of one kind."""
    return replace(
        scope,
        tenant_id=_TENANT,
        principal_id=_PRINCIPAL,
        project=None if scope.project is None else _PROJECT,
    )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement and its parameters, marks among them."""

    sql: str
    params: tuple[Any, ...]

    @classmethod
    def of(cls, queryset: models.QuerySet[Any, Any]) -> Self:
        sql, params = queryset.query.sql_with_params()
        return cls(sql, tuple(params))

    def rows(
        self,
        scope: ReadScope,
        values: Mapping[Any, Any] | None = None,
        *,
        using: str = DEFAULT_DB_ALIAS,
    ) -> list[tuple[Any, ...]]:
        """The rows for a scope of the shape it was built for, and for other marks' `values`."""
        of_mark = {
            _TENANT: scope.tenant_id,
            _PRINCIPAL: scope.principal_id,
            _PROJECT: scope.project,
            **(values or {}),
        }
        with connections[using].cursor() as cursor:
            cursor.execute(self.sql, [of_mark.get(param, param) for param in self.params])
            found: list[tuple[Any, ...]] = cursor.fetchall()
        return found
