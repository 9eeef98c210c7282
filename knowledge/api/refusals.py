"""With which errors the knowledge calls may answer, in groups that several share."""

from __future__ import annotations

from typing import Final

from access.errors import Forbidden, NotFound, ProjectForbidden, ScopeMissing
from artifacts.errors import (
    BlobDamaged,
    BlobMissing,
    InvalidUpload,
    StorageUnavailable,
    UploadQuotaExceeded,
    UploadTooLarge,
)
from knowledge.core import errors

READING: Final = (ProjectForbidden,)
SEARCHING: Final = (*READING, errors.InvalidQuery)
# Of a thing that may have been deleted since.
OF_SOMETHING: Final = (*READING, errors.Deleted)
WRITING: Final = (ScopeMissing, ProjectForbidden, Forbidden, errors.UntrustedOrigin)
# What is wrong with a file, or with what is said of it.
_OF_A_FILE: Final = (
    NotFound,
    BlobMissing,
    BlobDamaged,
    StorageUnavailable,
    errors.InvalidTitle,
    errors.UnsupportedMediaType,
    errors.MediaTypeMismatch,
    errors.UndecodableText,
    errors.BinaryContent,
    errors.EmptyExtraction,
    errors.TooLarge,
    errors.TooMuchText,
    errors.EncryptedDocument,
    errors.UnreadableDocument,
    errors.ExtractionTimeout,
    errors.ExtractionMemory,
    errors.ExtractionBusy,
    errors.ExtractionInterrupted,
    errors.SecretFound,
    errors.SensitivityAboveCeiling,
)
ADMITTING: Final = (
    *WRITING,
    *_OF_A_FILE,
    errors.InvalidBatchSize,
    errors.UnknownProfile,
    errors.IngestScopeMismatch,
    errors.IngestIncomplete,
    errors.IngestPlanMismatch,
    errors.IngestBusy,
    errors.IngestInterrupted,
    errors.ChunkSetRetired,
    errors.KnowledgeReleaseNotFinalized,
)
PROPOSING: Final = (ProjectForbidden, Forbidden, *_OF_A_FILE)
ATTACHING: Final = (
    InvalidUpload,
    UploadTooLarge,
    UploadQuotaExceeded,
    StorageUnavailable,
    errors.ConversationDeleted,
)
UPDATING: Final = (
    *WRITING,
    errors.InvalidTitle,
    errors.SecretFound,
    errors.SensitivityAboveCeiling,
    errors.ReasonMissing,
    errors.IngestBusy,
    errors.Deleted,
)
DELETING: Final = (
    *READING,
    Forbidden,
    ScopeMissing,
    errors.LegalHold,
    errors.Deleted,
    errors.DeletionIncomplete,
)

RECORDING: Final = (
    *WRITING,
    errors.InvalidRecord,
    errors.InvalidTitle,
    errors.ReasonMissing,
    errors.SensitivityAboveCeiling,
    errors.SecretFound,
    errors.RevisionConflict,
    errors.RequestConflict,
    errors.WrongKind,
    errors.EvidenceMissing,
    errors.EvidenceUnknownSource,
    errors.EvidenceLinesOutOfRange,
    errors.EvidenceWithoutText,
    errors.QuoteNotFound,
    BlobMissing,
    BlobDamaged,
    StorageUnavailable,
)
