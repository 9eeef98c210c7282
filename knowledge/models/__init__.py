"""The tables of the knowledge store."""

from knowledge.models.admission import PiiPolicy
from knowledge.models.arms import ArmSwitch
from knowledge.models.attachment import Attachment, Conversation
from knowledge.models.bulk import BulkItem, BulkTask
from knowledge.models.chunk import Chunk, ChunkSet, QuarantinedChunk
from knowledge.models.citation import Citation, CitedAnswer
from knowledge.models.deletion import DeletedChunk, Deletion
from knowledge.models.document import Document, DocumentVersion, VisibilitySpace
from knowledge.models.events import KnowledgeEvent, RefusalCount
from knowledge.models.figures import DailyFigures
from knowledge.models.golden import (
    GoldenAnswer,
    GoldenQuestion,
    GoldenResult,
    GoldenRun,
    GoldenSet,
)
from knowledge.models.index import ChunkIndex, SearchChange, TermDelta, TermStatistic
from knowledge.models.job import IngestJob
from knowledge.models.preturn import PreturnPolicy
from knowledge.models.proposal import RetentionProposal
from knowledge.models.record import Record, RecordRevision, RecordSource
from knowledge.models.trace import RecallTrace, TracedPassage
from knowledge.models.unfinished import UnfinishedVersion

__all__ = [
    "ArmSwitch",
    "Attachment",
    "BulkItem",
    "BulkTask",
    "Chunk",
    "ChunkIndex",
    "ChunkSet",
    "Citation",
    "CitedAnswer",
    "Conversation",
    "DailyFigures",
    "DeletedChunk",
    "Deletion",
    "Document",
    "DocumentVersion",
    "GoldenAnswer",
    "GoldenQuestion",
    "GoldenResult",
    "GoldenRun",
    "GoldenSet",
    "IngestJob",
    "KnowledgeEvent",
    "PiiPolicy",
    "PreturnPolicy",
    "QuarantinedChunk",
    "RecallTrace",
    "Record",
    "RecordRevision",
    "RecordSource",
    "RefusalCount",
    "RetentionProposal",
    "SearchChange",
    "TermDelta",
    "TermStatistic",
    "TracedPassage",
    "UnfinishedVersion",
    "VisibilitySpace",
]
