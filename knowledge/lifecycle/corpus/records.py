"""Records: the chain of their revisions, and whether what they cite stands where they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from artifacts.errors import BlobDamaged, BlobMissing
from artifacts.models import Artifact, SourceDescriptor
from knowledge.adapters.source_texts import text_of_source
from knowledge.core.errors import EvidenceRefused, EvidenceWithoutText
from knowledge.core.records import Evidence, Revision, check_against, revision_hash
from knowledge.lifecycle.corpus.findings import Check, Problem
from knowledge.lifecycle.corpus.originals import is_canonical
from knowledge.models import Record, RecordRevision

_REVISIONS_AT_ONCE: Final = 50


def _record(record: Record) -> Iterator[Problem]:
    previous, number, latest = "", 0, None
    seen: set[Evidence] = set()
    for row in record.revisions.order_by("revision").iterator(_REVISIONS_AT_ONCE):
        number += 1
        yield from _revision(row, number, previous)
        previous = row.sha256
        try:
            latest = row.value()
        except (KeyError, TypeError, ValueError):
            yield Problem(problem="revision cannot be read", of=f"revision {row.revision}")
            continue
        if (latest.record, latest.kind) != (record.pk, record.kind) or latest.revision != number:
            yield Problem(problem="revision of another record", of=f"revision {row.revision}")
        # What a later revision says again was looked at when it was first said.
        fresh = [one for one in latest.cited if one not in seen]
        seen.update(fresh)
        yield from _evidence(fresh, row.revision)
    if (record.revision, record.sha256) != (number, previous):
        yield Problem(problem="latest revision is another")
    if latest is not None:
        yield from _sources(record, latest, {one.source for one in seen})


def _revision(row: RecordRevision, number: int, previous: str) -> Iterator[Problem]:
    of = f"revision {row.revision}"
    if row.revision != number or row.previous_sha256 != previous:
        yield Problem(problem="revisions are no chain", of=of)
    if revision_hash(row.canonical.encode()) != row.sha256:
        yield Problem(problem="revision of another hash", of=of)
    if not is_canonical(row.canonical):
        yield Problem(problem="revision is not canonical JSON", of=of)


def _evidence(cited: list[Evidence], revision: int) -> Iterator[Problem]:
    for evidence in cited:
        if not evidence.speaks_of_text:
            continue
        of = f"revision {revision}, source {evidence.source}"
        descriptor = (
            SourceDescriptor.objects.select_related("artifact").filter(pk=evidence.source).first()
        )
        if descriptor is None:  # went with its document, which `_sources` looks at
            continue
        try:
            check_against(evidence, text_of_source(descriptor.artifact))
        except EvidenceWithoutText:
            yield Problem(problem="cited source has no text", of=of)
        except EvidenceRefused as refused:
            yield Problem(problem=f"cited words do not stand there: {refused.code}", of=of)
        except (BlobDamaged, BlobMissing):
            yield Problem(problem="cited source cannot be read", of=of)


def _sources(record: Record, latest: Revision, ever: set[str]) -> Iterator[Problem]:
    known = {one.descriptor_id: one for one in record.sources.all()}
    if set(known) != ever:
        yield Problem(problem="sources are not those that it cites")
    if {name for name, one in known.items() if one.current} != set(latest.source_ids):
        yield Problem(problem="current sources are not those of the latest revision")
    there = set(SourceDescriptor.objects.filter(pk__in=known).values_list("pk", flat=True))
    kept = set(
        Artifact.objects.filter(pk__in=[one.artifact_id for one in known.values()]).values_list(
            "pk", flat=True
        )
    )
    for name, one in known.items():
        # A document takes its source along when it is deleted, and leaves word of it.
        if one.deletion_id is None and (name not in there or one.artifact_id not in kept):
            yield Problem(problem="cited source is gone", of=f"source {name}")


CHECKS: Final = (Check(kind="record", rows=Record.objects.all, look=_record),)
