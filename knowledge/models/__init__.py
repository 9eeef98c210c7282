"""The tables of the knowledge store."""

from knowledge.models.chunk import Chunk, ChunkSet
from knowledge.models.document import Document, DocumentVersion, VisibilitySpace
from knowledge.models.events import KnowledgeEvent, RefusalCount
from knowledge.models.index import ChunkIndex, TermDelta, TermStatistic
from knowledge.models.job import IngestJob
from knowledge.models.trace import RecallTrace, TracedPassage
from knowledge.models.unfinished import UnfinishedVersion

__all__ = [
    "Chunk",
    "ChunkIndex",
    "ChunkSet",
    "Document",
    "DocumentVersion",
    "IngestJob",
    "KnowledgeEvent",
    "RecallTrace",
    "RefusalCount",
    "TermDelta",
    "TermStatistic",
    "TracedPassage",
    "UnfinishedVersion",
    "VisibilitySpace",
]
