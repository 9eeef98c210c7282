"""Gate: nobody is shown what they may not see, and everybody is shown all that they may.

Random worlds of tenants, principals, projects and sensitivities are asked by random callers on
every path, now and as of earlier instants. What each may see is decided a second time here, in
plain Python and without a line of the store's own rules; both must agree exactly. Names are the
same in both tenants on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from rest_framework.test import APIClient

from access.authentication import Caller
from access.errors import NotFound, ProjectForbidden
from access.principal import Principal
from access.trust import OriginTrust, Scope, Sensitivity
from artifacts import store as artifacts
from knowledge.core.errors import Deleted
from knowledge.core.types import Visibility
from knowledge.wiring import store
from tests.inspection import assert_statistics_are_those_of_the_live_rows
from tests.support import admit, ask, principal

pytestmark = pytest.mark.django_db

TENANTS = ("acme", "globex")
PEOPLE = ("alice", "bob", "carol")
PROJECTS = ("apollo", "borealis")
LEVELS = ("public", "internal", "confidential", "restricted")


@dataclass(kw_only=True)
class Version:
    marker: str
    chunk_id: str
    source: UUID
    after: int  # the number of the instant noted after it was admitted


@dataclass(kw_only=True)
class Known:
    """What the oracle knows of a document."""

    tenant: str
    by: str
    visibility: str
    project: str | None
    sensitivity: str
    document_id: UUID
    versions: list[Version] = field(default_factory=list)
    deleted: bool = False


@dataclass(kw_only=True)
class World:
    random: random.Random
    documents: list[Known] = field(default_factory=list)
    instants: list[datetime] = field(default_factory=list)

    def note(self) -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            self.instants.append(cursor.fetchone()[0])
        return len(self.instants) - 1

    def marker(self) -> str:
        # Without vowels, so that no stemmer finds an ending and no two become one.
        return "zq" + "".join(self.random.choice("bcdfgkmp") for _ in range(9))

    def grow(self) -> None:
        chosen = self.random.random()
        living = [known for known in self.documents if not known.deleted]
        if living and chosen < 0.25:
            self._admit(self.random.choice(living))
        elif living and chosen < 0.32:
            known = self.random.choice(living)
            store().delete(known.document_id, _writer(known), current_scope=known.project)
            known.deleted = True
            self.note()
        else:
            self._admit(None)

    def _admit(self, known: Known | None) -> None:
        pick = self.random.choice
        new = known or Known(
            tenant=pick(TENANTS),
            by=pick(PEOPLE),
            visibility=pick(["tenant", "project", "project", "principal", "principal"]),
            project=None,
            sensitivity=pick(LEVELS),
            document_id=UUID(int=0),
        )
        if known is None and new.visibility == "project":
            new.project = pick(PROJECTS)
        marker = self.marker()
        result = admit(
            f"# Pumps\n\nThe zebra pump runs at night. {marker}\n",
            by=_writer(new),
            title="Pumps",
            visibility=Visibility(new.visibility),
            project_scope=new.project,
            sensitivity=Sensitivity(new.sensitivity),
            document_id=known.document_id if known else None,
            language=pick(["simple", "english", "german"]),
        )
        new.document_id = result.document_id
        chunk = store().get_chunk(result.chunk_ids[0], _writer(new), current_scope=new.project)
        new.versions.append(
            Version(
                marker=marker,
                chunk_id=chunk.chunk_id,
                source=chunk.chunk_set.finalized_version.source_id,
                after=self.note(),
            )
        )
        if known is None:
            self.documents.append(new)


@dataclass(frozen=True, kw_only=True)
class Asker:
    """A caller and the project that it asks for, as the oracle sees them."""

    tenant: str
    who: str
    ceiling: str
    projects: frozenset[str] | None
    current: str | None
    operator: bool

    @property
    def principal(self) -> Principal:
        if self.operator:
            return Principal.for_operator(self.tenant, self.who)
        return Principal(
            tenant_id=self.tenant,
            principal_id=self.who,
            projects=self.projects,
            sensitivity_ceiling=Sensitivity(self.ceiling),
        )

    def sees(self, known: Known) -> bool:
        return not known.deleted and self.may_see(known)

    def may_see(self, known: Known) -> bool:
        """Whether it is theirs to see, deleted or not."""
        if known.tenant != self.tenant:
            return False
        if self.operator:
            return True
        if LEVELS.index(known.sensitivity) > LEVELS.index(self.ceiling):
            return False
        if known.visibility == "tenant":
            return True
        if known.visibility == "project":
            return self.current is not None and known.project == self.current
        return known.by == self.who


def _writer(known: Known) -> Principal:
    return principal(known.by, known.tenant, projects=None)


def _asker(chance: random.Random) -> Asker:
    projects = chance.choice([None, frozenset(PROJECTS), frozenset({"apollo"}), frozenset()])
    named = sorted(PROJECTS if projects is None else projects)
    return Asker(
        tenant=chance.choice(TENANTS),
        who=chance.choice([*PEOPLE, "mallory"]),
        ceiling=chance.choice(LEVELS),
        projects=projects,
        current=chance.choice([None, *named]),
        operator=chance.random() < 0.08,
    )


def _world(seed: int, documents: int) -> World:
    world = World(random=random.Random(seed))
    world.note()
    for _ in range(documents):
        world.grow()
    return world


def _live(known: Known, instant: int | None) -> Version | None:
    """The version that was live at a noted instant, or is now."""
    admitted = [v for v in known.versions if instant is None or v.after <= instant]
    return admitted[-1] if admitted else None


def _everything(text: str, asker: Asker, **given: Any) -> tuple[set[str], set[UUID]]:
    """Ids of the chunks that a search hands out, and of the documents that it so much as names."""
    result = ask(
        text,
        by=asker.principal,
        current_scope=asker.current,
        max_passages=50,
        max_per_document=50,
        budget_tokens=100_000,
        **given,
    )
    chunks = {passage.candidate.chunk_id for passage in result.passages}
    named = {passage.candidate.document_id for passage in result.passages}
    return chunks, named | {omitted.document_id for omitted in result.omitted}


def _search(world: World, asker: Asker) -> None:
    """One search that must return exactly what the oracle says."""
    instant = world.random.choice([None, world.random.randrange(len(world.instants))])
    given = {} if instant is None else {"as_of": world.instants[instant]}
    aim = world.random.choice(world.documents)
    text = world.random.choice(["zebra", "zebra", world.random.choice(aim.versions).marker])
    expected = {
        version.chunk_id: known.document_id
        for known in world.documents
        if asker.sees(known)
        and (version := _live(known, instant))
        and (text in {"zebra", version.marker})
    }
    chunks, named = _everything(text, asker, **given)
    assert chunks == set(expected), (asker, text, instant)
    assert named <= set(expected.values())


def _answered(call: Callable[..., object], *given: object, current: str | None) -> str:
    try:
        call(*given, current_scope=current)
    except NotFound:
        return "not found"
    except Deleted:
        return "deleted"
    return "found"


def _look_up(world: World, asker: Asker, *, documents: int) -> None:
    """Ids that exist, on every path of the store that takes one."""
    caller, current = asker.principal, asker.current
    for known in world.random.sample(world.documents, documents):
        seen = asker.sees(known)
        calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
            (store().get_document, (known.document_id, caller))
        ]
        for version in known.versions:
            calls += [
                (store().get_chunk, (version.chunk_id, caller)),
                (artifacts.get, (caller, version.source)),
            ]
        for call, given in calls:
            # That it was there is told to whoever could have seen it, and to nobody else; bytes
            # that are gone were never there.
            gone = asker.may_see(known) and call != artifacts.get
            expected = "found" if seen else "deleted" if gone else "not found"
            assert _answered(call, *given, current=current) == expected, (call, asker, known)


def _listed(asker: Asker) -> Iterator[UUID]:
    client = APIClient()
    client.force_authenticate(Caller(asker.principal), asker.principal)  # type: ignore[arg-type]
    address = "/v1/documents?page_size=7"
    if asker.current is not None:
        address += f"&current_scope={asker.current}"
    while address:
        page = client.get(address).json()
        yield from (UUID(document["document_id"]) for document in page["results"])
        address = page["next"]


def _list(world: World, asker: Asker) -> None:
    listed = list(_listed(asker))
    assert len(listed) == len(set(listed))
    assert set(listed) == {k.document_id for k in world.documents if asker.sees(k)}, asker


@pytest.mark.parametrize(
    "seed",
    [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)],
)
def test_callers_see_exactly_what_the_oracle_says(blob_root: Path, seed: int) -> None:
    world = _world(seed, documents=24)
    for _ in range(14):
        asker = _asker(world.random)
        for _ in range(8):
            _search(world, asker)
        _look_up(world, asker, documents=6)
        _list(world, asker)
    assert_statistics_are_those_of_the_live_rows()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_020))
def test_ten_thousand_searches_leak_nothing(blob_root: Path, seed: int) -> None:
    world = _world(seed, documents=40)
    for _ in range(50):
        asker = _asker(world.random)
        for _ in range(10):
            _search(world, asker)
        _look_up(world, asker, documents=10)
        _list(world, asker)


def test_the_oracle_tells_people_apart(blob_root: Path) -> None:
    """The worlds are varied enough to prove something: each rule shows and each rule hides."""
    world = _world(0, documents=24)
    askers = [_asker(world.random) for _ in range(16)]
    for visibility in ("tenant", "project", "principal"):
        known = [k for k in world.documents if k.visibility == visibility and not k.deleted]
        seen = {asker.sees(k) for asker in askers for k in known}
        assert seen == {True, False}, visibility
    assert any(len(known.versions) > 1 for known in world.documents)
    assert any(known.deleted for known in world.documents)


@pytest.mark.parametrize("visibility", ["tenant", "project", "principal"])
def test_a_hidden_document_moves_no_score_and_no_note(blob_root: Path, visibility: str) -> None:
    """Statistics are those of what the caller may see: not even a frequency betrays a word."""
    asker = Asker(
        tenant="acme",
        who="alice",
        ceiling="internal",
        projects=frozenset(PROJECTS),
        current="apollo",
        operator=False,
    )
    for words in ("zebra pump valve", "zebra gauge", "pump pump hose"):
        admit(f"# Notes\n\nAbout {words} at night.\n", language="english")

    def told() -> list[Any]:
        questions = ("zebra", "zebra valve", "hose", "quokka", "zebra quokka")
        results = [
            ask(text, by=asker.principal, current_scope="apollo", max_passages=50)
            for text in questions
        ]
        return [
            [(p.candidate.chunk_id, p.score, p.terms) for p in r.passages]
            + [(o.chunk_id, o.reason, o.score) for o in r.omitted]
            + [r.notes]
            for r in results
        ]

    before = told()
    hidden_by: dict[str, dict[str, Any]] = {
        "tenant": {"sensitivity": Sensitivity.CONFIDENTIAL},
        "project": {"project_scope": "borealis"},
        "principal": {},
    }
    hidden = hidden_by[visibility]
    for number in range(3):
        admit(
            f"# Secret\n\nThe zebra quokka number {number} has a valve and a hose.\n",
            by=principal("bob", projects=None),
            visibility=Visibility(visibility),
            language="english",
            **hidden,
        )
        admit(
            f"# Foreign\n\nThe zebra quokka number {number} has a valve.\n",
            by=principal("alice", "globex"),
            language="english",
        )
    assert told() == before


def test_a_project_that_the_key_may_not_name_is_forbidden_on_every_path(blob_root: Path) -> None:
    result = admit("# Pumps\n\nThe zebra pump.\n", visibility=Visibility.PROJECT)
    outsider = principal("bob", projects=frozenset({"borealis"}))
    chunk = store().get_chunk(result.chunk_ids[0], principal(), current_scope="apollo")
    calls: list[Callable[[], object]] = [
        lambda: ask("zebra", by=outsider, current_scope="apollo"),
        lambda: store().get_chunk(chunk.chunk_id, outsider, current_scope="apollo"),
        lambda: store().get_document(result.document_id, outsider, current_scope="apollo"),
        lambda: store().delete(result.document_id, outsider, current_scope="apollo"),
        lambda: artifacts.get(
            outsider, chunk.chunk_set.finalized_version.source_id, current_scope="apollo"
        ),
    ]
    for call in calls:
        with pytest.raises(ProjectForbidden):
            call()


def test_no_project_is_not_every_project(blob_root: Path) -> None:
    result = admit("# Pumps\n\nThe zebra pump.\n", visibility=Visibility.PROJECT)
    everywhere = principal(projects=None)
    assert not ask("zebra", by=everywhere).passages
    assert ask("zebra", by=everywhere, current_scope="apollo").passages
    with pytest.raises(NotFound):
        store().get_document(result.document_id, everywhere)


def test_a_new_version_cannot_be_put_on_what_one_cannot_see(blob_root: Path) -> None:
    hidden = admit("# Pumps\n\nThe zebra pump.\n", visibility=Visibility.PRINCIPAL)
    mallory = principal("mallory", scopes=frozenset({Scope.WRITE, Scope.DELETE}))
    for visibility in Visibility:
        with pytest.raises(NotFound):
            admit(
                "# Mine\n\nThe zebra pump is mine.\n",
                by=mallory,
                visibility=visibility,
                document_id=hidden.document_id,
                origin_trust=OriginTrust.USER,
            )
