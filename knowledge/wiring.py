"""Settings to adapters to store: the one place where the parts are put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Exists, OuterRef, Q
from django.utils.crypto import salted_hmac

from access.audit import AccessChange, register_recorder
from access.principal import Principal
from artifacts.models import ArtifactOrigin
from artifacts.store import register_keep_rule, register_read_rule, register_shared_rule
from knowledge.adapters.embedders.configuration import (
    ClassConfiguration,
    EmbedderConfiguration,
    EndpointConfiguration,
)
from knowledge.adapters.embedders.endpoint import EndpointEmbedder
from knowledge.adapters.embedders.local import LocalEmbedder, ModelMissing
from knowledge.adapters.embedding import Embedding
from knowledge.adapters.extractors import Extractors
from knowledge.adapters.injection import RuleInstructionScanner
from knowledge.adapters.language import Py3LangidDetector
from knowledge.adapters.registration import (
    registered_embedder,
    registered_extractors,
    registered_policy,
    registered_secret_rules,
)
from knowledge.adapters.secrets import LayeredSecretScanner
from knowledge.adapters.stemmer import PostgresStemmer
from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core.chunking import StructureChunker
from knowledge.core.fusion import SEMANTIC, CalibratedFusion, Fusion, ReciprocalRankFusion
from knowledge.core.ports import AdmissionPolicy, Embedder, VectorFiller
from knowledge.core.ranking import RankingPolicy
from knowledge.core.scope import resolve_scope
from knowledge.ingest.admission import AdmitAll
from knowledge.ingest.pipeline import Ingestor
from knowledge.models import (
    Attachment,
    ChunkSet,
    DocumentVersion,
    KnowledgeEvent,
    RecordSource,
    RetentionProposal,
    UnfinishedVersion,
    VisibilitySpace,
)
from knowledge.retrieval.arms import SearchArm
from knowledge.retrieval.lexical import LexicalArm
from knowledge.retrieval.replica import Replica
from knowledge.retrieval.search import Searcher
from knowledge.store import KnowledgeStore


def host_admission_policy() -> AdmissionPolicy:
    """An instance of the class that `KNOWLEDGE_ADMISSION_POLICY` names; without one, `AdmitAll`.

    Raises `ImproperlyConfigured`.
    """
    named = settings.KNOWLEDGE_ADMISSION_POLICY
    return registered_policy(named) if named else AdmitAll()


def check_registered() -> None:
    """A wrong class among those that the settings name ends the start and not the first ingest."""
    host_admission_policy()
    registered_extractors(settings.VERBATIM_EXTRACTORS)
    registered_secret_rules(settings.VERBATIM_SECRET_RULES)


@cache
def store() -> KnowledgeStore:
    """The knowledge store of this process."""
    tokens = TiktokenCounter()
    stemmer = PostgresStemmer()
    words = LexicalArm(stemmer)
    instruction_scanner = RuleInstructionScanner()
    semantic = semantic_parts()
    return KnowledgeStore(
        ingestor=Ingestor(
            extractors=Extractors(
                registered_extractors(settings.VERBATIM_EXTRACTORS),
                instruction_scanner=instruction_scanner,
            ),
            chunker=StructureChunker(tokens),
            secret_scanner=LayeredSecretScanner(
                fingerprint_key=salted_hmac("verbatim.secrets", "", algorithm="sha256").digest(),
                rule_cache=settings.SECRET_RULES_CACHE,
                rules=registered_secret_rules(settings.VERBATIM_SECRET_RULES),
            ),
            instruction_scanner=instruction_scanner,
            admission_policy=host_admission_policy(),
            stemmer=stemmer,
            language_detector=Py3LangidDetector(),
            max_bytes=settings.MAX_DOCUMENT_BYTES,
            embedding=semantic.embedding if semantic else None,
        ),
        searcher=Searcher(
            arms=(words, *((semantic.arm,) if semantic else ())),
            fusion=_FUSIONS[settings.SEARCH_FUSION],
            policy=RankingPolicy(),
            tokens=tokens,
            switched=frozenset({SEMANTIC}),
            speller=words,
            replica=Replica(REPLICA) if REPLICA in settings.DATABASES else None,
        ),
        filler=semantic.filler if semantic else None,
    )


# The alias that settings give it, when there is one.
REPLICA: Final = "replica"
_FUSIONS: Mapping[str, Fusion] = {"calibrated": CalibratedFusion(), "rrf": ReciprocalRankFusion()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticParts:
    """What an installation with an embedder has beside the rest."""

    embedding: Embedding
    arm: SearchArm
    filler: VectorFiller


def semantic_parts() -> SemanticParts | None:
    """`None` without an embedder; raises `ImproperlyConfigured` when its model is missing."""
    if not settings.EMBEDDERS:
        return None
    from knowledge.semantic.arm import SemanticArm  # noqa: PLC0415 - an app that is installed now
    from knowledge.semantic.embedders import (  # noqa: PLC0415
        Configured,
        Embedders,
        SwitchingEmbedding,
    )
    from knowledge.semantic.filling import Filler  # noqa: PLC0415
    from knowledge.semantic.vectors import PostgresVectors  # noqa: PLC0415

    embedders = Embedders(
        [Configured(embedder=embedder_of(one), floor=one.floor) for one in settings.EMBEDDERS]
    )
    vectors = PostgresVectors()
    return SemanticParts(
        embedding=SwitchingEmbedding(
            embedder=embedders.configured[0].embedder, vectors=vectors, embedders=embedders
        ),
        arm=SemanticArm(embedders),
        filler=Filler(embedders=embedders, vectors=vectors),
    )


def embedder_of(configured: EmbedderConfiguration) -> Embedder:
    """Raises `ImproperlyConfigured` for a local model or a class that is not there."""
    if isinstance(configured, EndpointConfiguration):
        return EndpointEmbedder(configured)
    if isinstance(configured, ClassConfiguration):
        return registered_embedder(configured.path)
    try:
        return LocalEmbedder(configured)
    except ModelMissing as missing:
        raise ImproperlyConfigured(f"EMBEDDER is local: {missing}") from missing


def register_access_log() -> None:
    """Keys and operators are changed a layer below; the event log has it all the same."""

    def keep(change: AccessChange) -> None:
        KnowledgeEvent.objects.create(
            tenant_id=change.tenant_id,
            name=change.name,
            actor=change.actor,
            surface="admin" if change.actor.startswith("operator:") else "command",
            data=dict(change.data),
        )

    register_recorder(keep)


def register_read_rules() -> None:
    """A document's source may be read by whoever may see the document.

    The snapshot of a proposal may be read by those who decide on it, and by who proposed it. What
    was kept for a record is for whoever may see the record; a record opens no document's source.
    """

    def source_rule(principal: Principal, current_scope: str | None) -> Q:
        spaces = VisibilitySpace.objects.visible_to(resolve_scope(principal, current_scope))
        seen = DocumentVersion.objects.filter(document__space__in=spaces)
        if not principal.operator:
            # An original holds what was set aside: it is for who sent it, and for operators.
            held_back = Q(quarantined_count__gt=0) | Q(rejected_count__gt=0)
            seen = seen.filter(
                ~Exists(ChunkSet.objects.filter(held_back, version=OuterRef("pk")))
                | Q(document__ingested_by_principal_id=principal.principal_id)
            )
        return Q(pk__in=seen.values("source"))

    def snapshot_rule(principal: Principal, current_scope: str | None) -> Q:  # noqa: ARG001
        return Q() if principal.operator else Q(principal_id=principal.principal_id)

    def cited_rule(principal: Principal, current_scope: str | None) -> Q:
        spaces = VisibilitySpace.objects.visible_to(resolve_scope(principal, current_scope))
        citing = RecordSource.objects.filter(artifact_id=OuterRef("pk"), record__space__in=spaces)
        return ~Q(origin=ArtifactOrigin.KNOWLEDGE_SOURCE) & Q(Exists(citing))

    register_shared_rule(cited_rule)
    register_read_rule(ArtifactOrigin.KNOWLEDGE_SOURCE, source_rule)
    register_read_rule(ArtifactOrigin.PROPOSAL, snapshot_rule)


def register_keep_rules() -> None:
    """The source of a version, finished or not, is kept for as long as the version.

    So is the file of an attachment, and the snapshot of a proposal; and whatever a record has ever
    cited, but for the sources of documents, which go with theirs.
    """

    def held() -> Q:
        holders = (
            DocumentVersion.objects.filter(source=OuterRef("pk")),
            UnfinishedVersion.objects.filter(original=OuterRef("pk")),
            Attachment.objects.filter(artifact=OuterRef("pk")),
            RetentionProposal.objects.filter(snapshot=OuterRef("pk")),
        )
        cited = RecordSource.objects.filter(artifact_id=OuterRef("pk"))
        of_record = ~Q(origin=ArtifactOrigin.KNOWLEDGE_SOURCE) & Q(Exists(cited))
        # Each by its index: few artifacts are due, and there are many versions.
        return reduce(or_, (Q(Exists(rows)) for rows in holders)) | of_record

    register_keep_rule(held)
