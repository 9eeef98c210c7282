"""Vectors of what was admitted without them, of other titles, and of a model that is to take over."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from django.db import connection, transaction

from access.principal import Principal
from access.tenancy import operations_session, tenant_session
from knowledge.adapters import changes
from knowledge.adapters.embedding import EmbedderFailed, Embedding, embed_passages
from knowledge.core.errors import NoEmbedder, VectorsMissing
from knowledge.core.ports import Embedder
from knowledge.core.types import EmbedReport, PassageVector
from knowledge.models import KnowledgeEvent
from knowledge.semantic import spaces
from knowledge.semantic.coverage import EMBEDDABLE
from knowledge.semantic.embedders import Embedders
from knowledge.semantic.vectors import PostgresVectors

logger = logging.getLogger(__name__)

AT_ONCE: Final = 64
# Under row-level security these are the bound tenant's own.
_MISSING = f"{EMBEDDABLE} AND (v.chunk IS NULL OR v.digest = '')"
_COUNT = f"SELECT count(*) {_MISSING}"
_NEXT = f"""
    SELECT m.id, d.title, m.heading_path, m.text FROM (
        SELECT c.id, s.version_id, c.heading_path, c.text {_MISSING} AND c.id > %(after)s
        ORDER BY c.id LIMIT %(limit)s
    ) m
    JOIN knowledge_documentversion e ON e.id = m.version_id
    JOIN knowledge_document d ON d.document_id = e.document_id
    ORDER BY m.id
"""  # noqa: S608 - constants of ours
_TENANTS = f"SELECT DISTINCT c.tenant_id {_MISSING} ORDER BY 1"


@dataclass(frozen=True, slots=True)
class _Passage:
    heading_path: list[str]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filler:
    """Fills embedding spaces and makes one of them the live one."""

    embedders: Embedders
    vectors: PostgresVectors

    def fill(
        self, tenant_id: str, *, on_progress: Callable[[EmbedReport], None] = lambda _report: None
    ) -> list[EmbedReport]:
        """Embeds what a tenant lacks, in every space that is not retired and has an embedder.

        Commits batch by batch, so that what was done before an interruption stays done. A report
        for each model; one with a `failure` stopped where the embedder did.
        """
        return self._filled(tenant_id, on_progress, until=math.inf)

    def fill_all(self, *, seconds: float) -> dict[str, list[EmbedReport]]:
        """The same for every tenant that lacks something, for about so long and no longer.

        An embedder that fails for one tenant is not asked for the others.
        """
        until = time.monotonic() + seconds
        told: dict[str, list[EmbedReport]] = {}
        for tenant in self.lacking():
            told[tenant] = self._filled(tenant, lambda _report: None, until=until)
            if time.monotonic() > until or any(report.failure for report in told[tenant]):
                break
        return told

    def _filled(
        self, tenant_id: str, on_progress: Callable[[EmbedReport], None], *, until: float
    ) -> list[EmbedReport]:
        return [
            self._fill(tenant_id, embedder, on_progress, until=until)
            for embedder in self._to_be_filled()
        ]

    def lacking(self) -> list[str]:
        """The tenants that lack a vector of any model that is to be filled."""
        found: set[str] = set()
        for embedder in self._to_be_filled():
            with operations_session(), connection.cursor() as cursor:
                cursor.execute(_TENANTS, {"embedding": _number(embedder)})
                found.update(tenant for (tenant,) in cursor.fetchall())
        return sorted(found)

    def missing(self, tenant_id: str) -> int:
        """How many of a tenant's passages have no vector, or one of other words, that searches
        could read."""
        return _missing(tenant_id, self.embedders.current())

    def switch(self, operator: Principal) -> str:
        """Makes the next model the one that searches read, for every tenant at once.

        Returns its name. Raises `NoEmbedder` when there is no other one, and `VectorsMissing`
        when some tenant's passages lack a vector of it.
        """
        live = spaces.live()
        following = next(
            (
                one.embedder
                for one in self.embedders.configured
                if live is None or one.embedder.model != live.model
            ),
            None,
        )
        if following is None:
            raise NoEmbedder("There is no model to switch to: set NEXT_EMBEDDER, and embed.")
        number = _number(following)
        with transaction.atomic():
            # Whoever publishes meanwhile with vectors of the former model is filled up later.
            with operations_session(), connection.cursor() as cursor:
                cursor.execute(_TENANTS, {"embedding": number})
                lacking = [tenant for (tenant,) in cursor.fetchall()]
            if lacking:
                raise VectorsMissing(
                    f"Passages of {len(lacking)} tenants have no vector of {following.model} yet;"
                    f" run `manage.py embed --tenant {lacking[0]}`."
                )
            spaces.take_over(number)
            with tenant_session(operator.tenant_id):
                KnowledgeEvent.objects.create(
                    tenant_id=operator.tenant_id,
                    name=KnowledgeEvent.MODEL_SWITCHED,
                    actor=operator.principal_id,
                    surface=operator.surface,
                    data={"model": following.model, "former": live.model if live else None},
                )
        return following.model

    def drop_retired(self) -> dict[str, int]:
        """Deletes the spaces that were switched away from, by model: how many vectors went."""
        with transaction.atomic():
            return {
                space.model: spaces.drop(space.number)
                for space in spaces.known()
                if space.state == "retired"
            }

    def _to_be_filled(self) -> Iterator[Embedder]:
        retired = {space.model for space in spaces.known() if space.state == "retired"}
        for one in self.embedders.configured:
            if one.embedder.model not in retired:
                yield one.embedder

    def _fill(
        self,
        tenant_id: str,
        embedder: Embedder,
        on_progress: Callable[[EmbedReport], None],
        *,
        until: float,
    ) -> EmbedReport:
        _number(embedder)
        embedding = Embedding(embedder=embedder, vectors=self.vectors)
        total = _missing(tenant_id, embedder)
        report = EmbedReport(model=embedder.model, embedded=0, missing=total)
        after = 0
        on_progress(report)
        try:
            while time.monotonic() < until and (batch := _next(tenant_id, embedder, after)):
                after = batch[-1][0]
                written = 0
                for title, rows in groupby(batch, key=lambda row: row[1]):
                    written += self._write(embedding, tenant_id, title, list(rows))
                report = EmbedReport(
                    model=embedder.model,
                    embedded=report.embedded + written,
                    missing=max(report.missing - len(batch), 0),
                )
                on_progress(report)
        except EmbedderFailed as failed:
            return EmbedReport(
                model=embedder.model,
                embedded=report.embedded,
                missing=_missing(tenant_id, embedder),
                failure=failed.reason,
            )
        return EmbedReport(
            model=embedder.model,
            embedded=report.embedded,
            missing=_missing(tenant_id, embedder),
        )

    def _write(
        self, embedding: Embedding, tenant_id: str, title: str, rows: list[tuple[Any, ...]]
    ) -> int:
        passages = [_Passage(heading_path, text) for _, _, heading_path, text in rows]
        embedded = embed_passages(embedding, tenant_id, title, passages)
        numbers = [row[0] for row in rows]
        by_number: dict[int, PassageVector] = dict(zip(numbers, embedded.vectors, strict=True))
        with tenant_session(tenant_id):
            changes.mark(tenant_id)
            return self.vectors.fill(by_number, model=embedded.model, title=title)


def _number(embedder: Embedder) -> int:
    return spaces.made(embedder.model, dimensions=embedder.dimensions)


def _missing(tenant_id: str, embedder: Embedder) -> int:
    with tenant_session(tenant_id), connection.cursor() as cursor:
        cursor.execute(_COUNT, {"embedding": spaces.number_of(embedder.model) or 0})
        return int(cursor.fetchone()[0])


def _next(tenant_id: str, embedder: Embedder, after: int) -> list[tuple[Any, ...]]:
    with tenant_session(tenant_id), connection.cursor() as cursor:
        number = spaces.number_of(embedder.model)
        cursor.execute(_NEXT, {"embedding": number, "after": after, "limit": AT_ONCE})
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
