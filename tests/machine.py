"""The store against a plain-Python model of what must be visible, step by random step.

The model knows documents, versions and chunk sets by the steps in which they came and went, and who
may see what by rules written down here a second time. It shares no line with the store's own rules,
and it learns of a chunk id only what the store hands out when it makes one. Any act may die at a
named point of its transaction; then nothing may have happened.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pkgutil import resolve_name
from typing import Any
from unittest import mock
from uuid import UUID

from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from access.errors import NotFound
from access.principal import Principal
from access.tenancy import operations_session
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts.models import Artifact, ArtifactOrigin
from artifacts.sweeper import sweep
from knowledge.adapters import term_index
from knowledge.adapters.database import now
from knowledge.core.errors import ChunkSetRetired, Deleted, IngestIncomplete, LegalHold
from knowledge.core.quoting import QuoteOutcome
from knowledge.core.types import (
    ConnectorIdentity,
    DocumentChange,
    IngestRequest,
    KnowledgeQuery,
    RechunkOutcome,
    RechunkRequest,
    Visibility,
)
from knowledge.models import UnfinishedVersion
from knowledge.retrieval.verify import Quote
from knowledge.store import KnowledgeStore
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.rechunk_fakes import FinerChunker, later
from tests.support import upload

CHUNKERS = ("fine-1", "fine-2", "fine-3")
PROJECTS = ("apollo", "zeus")
MOST_DOCUMENTS = 8
MOST_FOUND = 50
LEVELS = ("internal", "confidential")

# Points inside transactions that write. An act that never comes to the one it is to die at lives.
POINTS = (
    ("knowledge.ingest.commit.lock_document", "after"),
    ("knowledge.ingest.publishing.write_chunks", "after"),
    ("knowledge.ingest.batches._write", "after"),
    ("knowledge.ingest.publishing._record", "after"),
    ("knowledge.ingest.batches._NewVersion.finalize", "after"),
    ("knowledge.adapters.term_index.retire", "before"),
    ("knowledge.adapters.term_index.retire", "after"),
    ("knowledge.adapters.term_index.publish", "before"),
    ("knowledge.adapters.term_index.publish", "after"),
    ("knowledge.adapters.term_index.replace", "before"),
    ("knowledge.adapters.term_index.replace", "after"),
    ("knowledge.adapters.term_index.move", "before"),
    ("knowledge.adapters.term_index.move", "after"),
    ("knowledge.adapters.term_index.remove", "before"),
    ("knowledge.adapters.term_index.remove", "after"),
    ("knowledge.lifecycle.delete._record", "after"),
    ("knowledge.lifecycle.update._Recorder.record", "after"),
)


class Died(BaseException):
    """The process is gone: nothing may catch this on its way."""


@dataclass(frozen=True, slots=True)
class Death:
    """Where an act dies, and whether its connection goes with it or its transaction is undone."""

    target: str
    when: str
    disconnects: bool


DEATHS = (
    st.none()
    | st.none()
    | st.builds(
        lambda point, cut: Death(point[0], point[1], disconnects=cut),
        st.sampled_from(POINTS),
        st.booleans(),
    )
)


@contextlib.contextmanager
def dying(death: Death | None) -> Iterator[list[bool]]:
    """Lets what happens inside die there. Yields a list that is not empty when it did."""
    died: list[bool] = []
    if death is None:
        yield died
        return
    owner_path, _, name = death.target.rpartition(".")
    owner = resolve_name(owner_path)
    real: Callable[..., Any] = getattr(owner, name)

    def fatal(*given: Any, **named: Any) -> Any:
        if death.when == "after":
            real(*given, **named)
        died.append(True)
        if death.disconnects:
            connection.close()
        raise Died

    with mock.patch.object(owner, name, fatal), contextlib.suppress(Died):
        yield died


# --- the model -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Viewer:
    """A caller on behalf of a project, or of none."""

    principal: Principal
    project: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """Who may see a document."""

    tenant: str
    owner: str
    visibility: str
    project: str | None
    sensitivity: str

    def seen_by(self, viewer: Viewer) -> bool:
        who = viewer.principal
        if who.tenant_id != self.tenant:
            return False
        if self.sensitivity == "confidential" and who.sensitivity_ceiling == Sensitivity.INTERNAL:
            return False
        if who.operator or self.visibility == "tenant":
            return True
        if self.visibility == "principal":
            return who.principal_id == self.owner
        return viewer.project is not None and viewer.project == self.project


@dataclass(slots=True)
class Cut:
    """A chunk set: chunk ids by the words that stand in one passage each. Steps, not instants."""

    chunker: str
    ids: dict[str, str]
    since: int
    until: int | None = None


@dataclass(slots=True)
class Known:
    """A version."""

    number: int
    markers: tuple[str, ...]
    since: int
    cuts: list[Cut]
    until: int | None = None


@dataclass(slots=True)
class Doc:
    document_id: UUID
    source: ConnectorIdentity
    place: Place
    title: str
    versions: list[Known]
    held: bool = False
    texts: list[tuple[str, ...]] = field(default_factory=list)

    def cut_at(self, moment: int | None) -> tuple[Known, Cut] | None:
        """The version and the chunk set that were live; `None` is now."""
        for version in self.versions:
            for cut in version.cuts:
                if _was(version, moment) and _was(cut, moment):
                    return version, cut
        return None

    def cuts(self) -> list[tuple[Known, Cut]]:
        return [(version, cut) for version in self.versions for cut in version.cuts]


def _was(one: Known | Cut, moment: int | None) -> bool:
    if moment is None:
        return one.until is None
    return one.since <= moment and (one.until is None or moment < one.until)


@dataclass(frozen=True, slots=True)
class Gone:
    """A deleted document: where it was, and every id that could be read."""

    document_id: UUID
    place: Place
    ids: frozenset[str]
    step: int


@dataclass(frozen=True, slots=True)
class Traced:
    trace_id: UUID
    viewer: Viewer
    shown: tuple[tuple[str, UUID], ...]
    block: str
    step: int


_runs = itertools.count(1)


def _unlike_all_others(name: str) -> str:
    """A word of consonants that no other name's comes near: a search forgives a typo or two."""
    letters = str.maketrans("0123456789abcdef", "bcdfghjkmnpqrtvw")
    return f"zq{hashlib.sha256(name.encode()).hexdigest()[:12].translate(letters)}q"


class StoreMachine(RuleBasedStateMachine):
    """One world of two tenants that nobody else uses."""

    def __init__(self) -> None:
        super().__init__()
        run = next(_runs)
        self.acme, self.rival = f"acme-{run}", f"rival-{run}"
        self.words = (_unlike_all_others(f"{run} {n}") for n in itertools.count(1))
        self.stores: dict[str, KnowledgeStore] = {
            name: later(chunker=FinerChunker(name, target=40 + 10 * number))
            for number, name in enumerate(CHUNKERS)
        }
        self.store = self.stores[CHUNKERS[0]]
        everywhere = frozenset(PROJECTS)
        alice = _person(self.acme, "alice", projects=everywhere)
        bob = _person(self.acme, "bob", projects=frozenset({"apollo"}))
        carol = _person(self.acme, "carol", projects=None, sensitivity_ceiling=Sensitivity.INTERNAL)
        # Of the same name and of another tenant.
        eve = _person(self.rival, "alice", projects=everywhere)
        self.writers = (alice, bob, eve)
        self.operators = {
            tenant: Principal.for_operator(tenant, "olga") for tenant in (self.acme, self.rival)
        }
        self.viewers = (
            *(Viewer(alice, project) for project in (None, *PROJECTS)),
            *(Viewer(bob, project) for project in (None, "apollo")),
            *(Viewer(carol, project) for project in (None, "zeus")),
            *(Viewer(eve, project) for project in (None, "apollo")),
            Viewer(self.operators[self.acme], None),
        )
        self.docs: list[Doc] = []
        self.gone: list[Gone] = []
        self.dead: list[tuple[Doc, Gone]] = []
        self.traces: list[Traced] = []
        self.instants: list[datetime] = []
        self.touched: Doc | Gone | None = None
        self._next()

    # --- steps and instants

    @property
    def step(self) -> int:
        """The number of the instant that is noted when the present act is over."""
        return len(self.instants)

    def _next(self) -> None:
        with operations_session():
            self.instants.append(now())

    def word(self) -> str:
        return next(self.words)

    def _doc(self, choice: int) -> Doc:
        return self.docs[choice % len(self.docs)]

    def _owner(self, doc: Doc) -> Viewer:
        """The owner, on behalf of the project that the document is in, and never below it."""
        for writer in self.writers:
            if (writer.tenant_id, writer.principal_id) == (doc.place.tenant, doc.place.owner):
                project = doc.place.project
                if project is not None and not writer.may_name(project):
                    writer = replace(writer, projects=None)  # noqa: PLW2901 - they moved it there
                return Viewer(writer, project)
        raise AssertionError(doc.place)

    # --- acts

    @precondition(lambda self: len(self.docs) < MOST_DOCUMENTS)
    @rule(
        writer=st.integers(0, 2),
        visibility=st.sampled_from(["tenant", "project", "principal"]),
        sensitivity=st.sampled_from(LEVELS),
        parts=st.integers(1, 3),
        batched=st.booleans(),
        again=st.booleans(),
        death=DEATHS,
    )
    def ingest(
        self,
        *,
        writer: int,
        visibility: str,
        sensitivity: str,
        parts: int,
        batched: bool,
        again: bool,
        death: Death | None,
    ) -> None:
        """A new document, or one that was deleted, with the very text that it had."""
        who = self.writers[writer]
        project = "apollo" if visibility == "project" else None
        place = Place(who.tenant_id, who.principal_id, visibility, project, sensitivity)
        source = ConnectorIdentity(type="wiki", id=self.word())
        markers = tuple(self.word() for _ in range(parts))
        dead = [
            (past, gone)
            for past, gone in self.dead
            if past.place.tenant == who.tenant_id and past.place.owner == who.principal_id
        ]
        if again and dead:
            past, _ = dead[-1]
            if all(doc.source != past.source for doc in self.docs):
                source, markers = past.source, past.versions[-1].markers
        doc = Doc(UUID(int=0), source, place, self.word(), [], texts=[])
        self._admit(doc, who, markers, doc.title, batched=batched, death=death)

    @precondition(lambda self: self.docs)
    @rule(
        choice=st.integers(0, 99),
        text=st.sampled_from(["new", "older", "current"]),
        retitled=st.booleans(),
        by_id=st.booleans(),
        batched=st.booleans(),
        parts=st.integers(1, 3),
        death=DEATHS,
    )
    def new_version(
        self,
        *,
        choice: int,
        text: str,
        retitled: bool,
        by_id: bool,
        batched: bool,
        parts: int,
        death: Death | None,
    ) -> None:
        doc = self._doc(choice)
        markers = tuple(self.word() for _ in range(parts))
        if text == "older":
            markers = doc.texts[choice % len(doc.texts)]
        elif text == "current":
            markers = doc.versions[-1].markers
        title = self.word() if retitled else doc.title
        owner = self._owner(doc).principal
        self._admit(doc, owner, markers, title, batched=batched, death=death, by_id=by_id)

    def _admit(
        self,
        doc: Doc,
        who: Principal,
        markers: tuple[str, ...],
        title: str,
        *,
        batched: bool,
        death: Death | None,
        by_id: bool = False,
    ) -> None:
        place = doc.place
        request = IngestRequest(
            artifact_id=upload(who, text_of(markers)).pk,
            title=f"Manual {title}",
            visibility=Visibility(place.visibility),
            project_scope=place.project,
            sensitivity=Sensitivity(place.sensitivity),
            language="simple",
            document_id=doc.document_id if by_id else None,
            source=None if by_id else doc.source,
            origin_trust=OriginTrust.USER,
            batch_size=1 if batched else 64,
        )
        result = None
        with dying(death) as died:
            try:
                result = self.store.ingest(request, who)
            except IngestIncomplete:  # what died in the middle is there to go on with
                result = self.store.ingest(replace(request, resume=True), who)
        if died:
            return
        assert result is not None
        assert result.report.complete
        current = doc.versions[-1] if doc.versions else None
        if current is not None and current.markers == markers:
            assert (result.already_ingested, result.version) == (True, current.number)
            return
        number = current.number + 1 if current else 1
        assert (result.already_ingested, result.version) == (False, number)
        assert len(result.chunk_ids) == len(markers)
        if current is None:
            doc.document_id = result.document_id
            self.docs.append(doc)
        else:
            assert result.document_id == doc.document_id
            current.until = self.step
        ids = dict(zip(markers, result.chunk_ids, strict=True))
        cut = Cut(CHUNKERS[0], ids, since=self.step)
        doc.versions.append(Known(number, markers, self.step, [cut]))
        doc.texts.append(markers)
        doc.title = title
        self.touched = doc

    @precondition(lambda self: self.docs)
    @rule(
        choice=st.integers(0, 99),
        chunker=st.sampled_from(CHUNKERS),
        batched=st.booleans(),
        death=DEATHS,
    )
    def rechunk(self, *, choice: int, chunker: str, batched: bool, death: Death | None) -> None:
        doc = self._doc(choice)
        version = doc.versions[-1]
        live = version.cuts[-1]
        operator = self.operators[doc.place.tenant]
        asked = RechunkRequest(batch_size=1 if batched else 64)
        if chunker != live.chunker and chunker in {cut.chunker for cut in version.cuts}:
            with contextlib.suppress(ChunkSetRetired):
                self.stores[chunker].rechunk(doc.document_id, operator, asked)
                raise AssertionError("a retired chunk set stays retired")
            return
        result = None
        with dying(death) as died:
            result = self.stores[chunker].rechunk(doc.document_id, operator, asked)
        if died:
            return
        assert result is not None
        if chunker == live.chunker:
            assert result.outcome is RechunkOutcome.UNCHANGED
            return
        assert result.outcome is RechunkOutcome.RECHUNKED
        ids = {}
        for marker in version.markers:
            found = self._found(Viewer(operator, None), marker)
            assert len(found) == 1
            assert not found & known_ids(doc)
            ids[marker] = found.pop()
        assert len(set(ids.values())) == len(version.markers)
        live.until = self.step
        version.cuts.append(Cut(chunker, ids, since=self.step))
        self.touched = doc

    @precondition(lambda self: self.docs)
    @rule(choice=st.integers(0, 99), operator=st.booleans(), death=DEATHS)
    def retitle(self, *, choice: int, operator: bool, death: Death | None) -> None:
        doc, title = self._doc(choice), self.word()
        if self._change(doc, operator, death, title=f"Manual {title}"):
            doc.title = title

    @precondition(lambda self: self.docs)
    @rule(
        choice=st.integers(0, 99),
        visibility=st.sampled_from(["tenant", "project", "principal"]),
        project=st.sampled_from(PROJECTS),
        sensitivity=st.sampled_from(LEVELS),
        operator=st.booleans(),
        death=DEATHS,
    )
    def rescope(
        self,
        *,
        choice: int,
        visibility: str,
        project: str,
        sensitivity: str,
        operator: bool,
        death: Death | None,
    ) -> None:
        doc = self._doc(choice)
        to = project if visibility == "project" else None
        if to is not None and not self._owner(doc).principal.may_name(to):
            operator = True
        done = self._change(
            doc,
            operator,
            death,
            visibility=Visibility(visibility),
            project_scope=to,
            sensitivity=Sensitivity(sensitivity),
        )
        if done:
            doc.place = replace(
                doc.place, visibility=visibility, project=to, sensitivity=sensitivity
            )

    @precondition(lambda self: self.docs)
    @rule(choice=st.integers(0, 99), held=st.booleans(), death=DEATHS)
    def hold(self, *, choice: int, held: bool, death: Death | None) -> None:
        doc = self._doc(choice)
        if self._change(doc, True, death, legal_hold=held, reason="a case"):
            doc.held = held

    def _change(self, doc: Doc, operator: bool, death: Death | None, **given: Any) -> bool:
        """Whether it lived to see it done."""
        by = self._owner(doc)
        if operator:
            by = Viewer(self.operators[doc.place.tenant], None)
        change = DocumentChange(origin_trust=OriginTrust.USER, **given)
        with dying(death) as died:
            self.store.update(doc.document_id, by.principal, change, current_scope=by.project)
        self.touched = doc
        return not died

    @precondition(lambda self: self.docs)
    @rule(choice=st.integers(0, 99), death=DEATHS)
    def delete(self, *, choice: int, death: Death | None) -> None:
        doc = self._doc(choice)
        by = self._owner(doc)
        refused = False
        with dying(death) as died:
            try:
                self.store.delete(doc.document_id, by.principal, current_scope=by.project)
            except LegalHold:
                refused = True
        if died:
            return
        assert refused is doc.held
        if refused:
            return
        gone = Gone(doc.document_id, doc.place, frozenset(known_ids(doc)), self.step)
        self.docs.remove(doc)
        self.gone.append(gone)
        self.dead.append((doc, gone))
        self.touched = gone

    @precondition(lambda self: self.gone and not self.step % 4)
    @rule(merge=st.booleans())
    def tend(self, *, merge: bool) -> None:
        """What workers do in between: none of it is to be seen."""
        if merge:
            with operations_session():
                term_index.merge_statistics()
            return
        sweep()
        with operations_session():
            tenants = (self.acme, self.rival)
            kept = Artifact.objects.filter(
                tenant_id__in=tenants, origin=ArtifactOrigin.KNOWLEDGE_SOURCE
            ).count()
            begun = UnfinishedVersion.objects.filter(tenant_id__in=tenants).count()
        assert kept == begun + sum(len(doc.versions) for doc in self.docs)

    # --- questions

    @precondition(lambda self: self.docs or self.gone)
    @rule(
        viewer=st.integers(0, 99), moment=st.none() | st.integers(0, 99), choice=st.integers(0, 99)
    )
    def search(self, *, viewer: int, moment: int | None, choice: int) -> None:
        """By the words of a passage or of a title, of any version, present or former."""
        by = self._viewer(viewer)
        when = self._moment(moment)
        words = ["pump"]
        for doc in self.docs:
            words += [doc.title, *(marker for text in doc.texts for marker in text)]
        for past, _ in self.dead:
            words += [past.title, *past.texts[0]]
        word = words[choice % len(words)]
        assert self._found(by, word, when) == self._expected(by, word, when)

    @precondition(lambda self: self.docs or self.gone)
    @rule(
        viewer=st.integers(0, 99), moment=st.none() | st.integers(0, 99), choice=st.integers(0, 999)
    )
    def resolve(self, *, viewer: int, moment: int | None, choice: int) -> None:
        ids = sorted({one for doc in self.docs for one in known_ids(doc)})
        ids += sorted({one for gone in self.gone for one in gone.ids})
        self._resolves(self._viewer(viewer), ids[choice % len(ids)], self._moment(moment))

    @precondition(lambda self: self.docs or self.gone)
    @rule(
        viewer=st.integers(0, 99), moment=st.none() | st.integers(0, 99), choice=st.integers(0, 99)
    )
    def open_document(self, *, viewer: int, moment: int | None, choice: int) -> None:
        by, when = self._viewer(viewer), self._moment(moment)
        ids = [doc.document_id for doc in self.docs] + [gone.document_id for gone in self.gone]
        document_id = ids[choice % len(ids)]
        expected: Any = self._tombstone(by, lambda gone: gone.document_id == document_id)
        for doc in self.docs:
            there = [v for v in doc.versions if when is None or v.since <= when]
            if doc.document_id == document_id and there and doc.place.seen_by(by):
                expected = (
                    f"Manual {doc.title}",
                    doc.place.visibility,
                    [(version.number, _was(version, when)) for version in reversed(there)],
                )
        told: Any
        try:
            shown = self.store.get_document(
                document_id, by.principal, current_scope=by.project, as_of=self._at(when)
            )
            told = (
                shown.title,
                shown.space.visibility,
                [(one.version, one.superseded_at is None) for one in shown.versions.all()],
            )
        except (NotFound, Deleted) as refused:
            told = type(refused)
        assert told == expected

    @precondition(lambda self: self.docs)
    @rule(
        viewer=st.integers(0, 99),
        moment=st.none() | st.integers(0, 99),
        choice=st.integers(0, 999),
        other=st.integers(0, 999),
    )
    def verify_quote(self, *, viewer: int, moment: int | None, choice: int, other: int) -> None:
        by, when = self._viewer(viewer), self._moment(moment)
        places = [
            (doc, version, cut, marker)
            for doc in self.docs
            for version, cut in doc.cuts()
            for marker in version.markers
        ]
        doc, _, cut, marker = places[choice % len(places)]
        quoted = places[other % len(places)][3]
        asked = Quote(chunk_id=cut.ids[marker], text=f"The {quoted} pump hums.")
        (checked,) = self.store.verify_quotes(
            [asked], by.principal, current_scope=by.project, as_of=self._at(when)
        )
        there = doc.place.seen_by(by) and (when is None or cut.since <= when)
        holders = self._expected(by, quoted, when)
        found = checked.chunk.chunk_id if checked.chunk else None
        if there and quoted == marker:
            assert (checked.outcome, found) == (QuoteOutcome.EXACT, asked.chunk_id)
        elif holders:
            assert checked.outcome is QuoteOutcome.MISATTRIBUTED
            assert found in holders
        else:
            assert (checked.outcome, found) == (QuoteOutcome.NOT_FOUND, None)

    @precondition(lambda self: self.traces)
    @rule(choice=st.integers(0, 999))
    def view_trace(self, *, choice: int) -> None:
        traced = self.traces[choice % len(self.traces)]
        by = traced.viewer
        view = self.store.view_trace(traced.trace_id, by.principal, current_scope=by.project)
        expected = []
        for chunk_id, document_id in traced.shown:
            # For good, even when the same text came back under the same id.
            deleted = any(
                gone.document_id == document_id and gone.step >= traced.step for gone in self.gone
            )
            seen = any(doc.place.seen_by(by) and chunk_id in known_ids(doc) for doc in self.docs)
            expected.append("deleted" if deleted else "shown" if seen else "withheld")
        assert [str(passage.state) for passage in view.passages] == expected
        whole = all(state == "shown" for state in expected)
        assert (view.block, str(view.block_state)) == (
            (traced.block, "reproduced") if whole else (None, "incomplete")
        )

    # --- agreement

    @invariant()
    def agree(self) -> None:
        """One viewer sees all that it may; whatever was touched is seen by all who may see it."""
        by = self.viewers[self.step % len(self.viewers)]
        assert self._found(by, "pump") == self._expected(by, "pump")
        touched, self.touched = self.touched, None
        if touched is not None:
            ids = sorted(touched.ids) if isinstance(touched, Gone) else sorted(known_ids(touched))
            for turn in range(3):
                self._resolves(self._viewer(3 * self.step + turn), ids[self.step % len(ids)], None)
        self._next()

    def teardown(self) -> None:
        for by, when in itertools.product(self.viewers, (None, self.step // 2)):
            assert self._found(by, "pump", when) == self._expected(by, "pump", when)
        for doc, by in zip(self.docs, itertools.cycle(self.viewers), strict=False):
            assert self._found(by, doc.title) == self._expected(by, doc.title)
        assert_statistics_are_those_of_the_live_rows()

    def _viewer(self, choice: int) -> Viewer:
        return self.viewers[choice % len(self.viewers)]

    def _moment(self, choice: int | None) -> int | None:
        return None if choice is None else choice % len(self.instants)

    def _at(self, moment: int | None) -> datetime | None:
        return None if moment is None else self.instants[moment]

    def _found(self, by: Viewer, word: str, moment: int | None = None) -> set[str]:
        query = KnowledgeQuery(
            text=word,
            as_of=self._at(moment),
            current_scope=by.project,
            min_score=0.0,
            max_passages=MOST_FOUND,
            max_per_document=MOST_FOUND,
            budget_tokens=100_000,
        )
        result = self.store.search(query, by.principal)
        shown = [(one.candidate.chunk_id, one.candidate.document_id) for one in result.passages]
        self.traces.append(
            Traced(result.trace_id, by, tuple(shown), result.block.text, len(self.instants))
        )
        found = [chunk_id for chunk_id, _ in shown] + [one.chunk_id for one in result.omitted]
        assert len(found) == len(set(found))
        return set(found)

    def _expected(self, by: Viewer, word: str, moment: int | None = None) -> set[str]:
        expected = set()
        for doc in self.docs:
            live = doc.cut_at(moment)
            if live is None or not doc.place.seen_by(by):
                continue
            _, cut = live
            for marker, chunk_id in cut.ids.items():
                if word in {"pump", doc.title, marker}:
                    expected.add(chunk_id)
        return expected

    def _tombstone(self, by: Viewer, of: Callable[[Gone], bool]) -> type[Exception]:
        known = any(of(gone) and gone.place.seen_by(by) for gone in self.gone)
        return Deleted if known else NotFound

    def _resolves(self, by: Viewer, chunk_id: str, moment: int | None) -> None:
        expected: Any = self._tombstone(by, lambda gone: chunk_id in gone.ids)
        for doc in self.docs:
            for version, cut in doc.cuts():
                if chunk_id not in cut.ids.values() or not doc.place.seen_by(by):
                    continue
                if moment is not None and cut.since > moment:
                    continue
                newest = next(v for v in doc.versions if _was(v, moment))
                (marker,) = (m for m, one in cut.ids.items() if one == chunk_id)
                superseded = None if newest is version else newest.number
                live = newest is version and _was(cut, moment)
                expected = (version.number, f"Manual {doc.title}", marker, live, superseded)
        told: Any
        try:
            chunk: Any = self.store.get_chunk(
                chunk_id, by.principal, current_scope=by.project, as_of=self._at(moment)
            )
            version = chunk.chunk_set.version
            (marker,) = (word for word in chunk.text.split() if word.startswith("zq"))
            told = (
                version.version,
                version.document.title,
                marker,
                chunk.live,
                chunk.superseded_by_version,
            )
        except (NotFound, Deleted) as refused:
            told = type(refused)
        assert told == expected


def text_of(markers: tuple[str, ...]) -> str:
    """One passage for each word."""
    parts = (f"## Part {n}\n\nThe {marker} pump hums.\n" for n, marker in enumerate(markers))
    return "# Notes\n\n" + "\n".join(parts)


def known_ids(doc: Doc) -> set[str]:
    return {chunk_id for _, cut in doc.cuts() for chunk_id in cut.ids.values()}


def _person(tenant: str, who: str, **given: Any) -> Principal:
    return Principal(
        **{
            "tenant_id": tenant,
            "principal_id": who,
            "scopes": frozenset({Scope.WRITE}),
            "max_origin_trust": OriginTrust.USER,
            "sensitivity_ceiling": Sensitivity.RESTRICTED,
            **given,
        }
    )
