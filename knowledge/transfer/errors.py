"""Why an archive could not be written or was not taken in, with stable codes."""

from __future__ import annotations

from access.errors import Malformed
from knowledge.core.errors import KnowledgeError


class ArchiveInTheWay(KnowledgeError):
    """Something else stands where the archive is to be written."""

    code = "archive_in_the_way"
    status = 409


class OriginalsMissing(KnowledgeError):
    """The bytes of some originals are gone or are not those that were admitted."""

    code = "originals_missing"
    status = 409


class NothingToExport(Malformed):
    """There is nothing of this tenant."""

    code = "nothing_to_export"


class ArchiveRefused(KnowledgeError, Malformed):
    """The archive cannot be taken in; nothing was changed."""

    code = "archive_refused"


class ArchiveMalformed(ArchiveRefused):
    """This is no archive of a corpus, or its export has not ended."""

    code = "archive_malformed"


class ArchiveVersionUnknown(ArchiveRefused):
    """The archive was written by a version whose tables are not those of this one."""

    code = "archive_version_unknown"


class ArchiveUnsafe(ArchiveRefused):
    """The archive holds something other than the plain files that belong there."""

    code = "archive_unsafe"


class ArchiveDamaged(ArchiveRefused):
    """A file of the archive is not the one that its manifest tells of."""

    code = "archive_damaged"


class ArchiveRowInvalid(ArchiveRefused):
    """A line of the archive is not a row that could have been written there."""

    code = "archive_row_invalid"


class ArchiveInconsistent(ArchiveRefused):
    """Rows of the archive contradict one another."""

    code = "archive_inconsistent"


class ImportConflict(KnowledgeError):
    """What is here already is not what the archive holds."""

    code = "import_conflict"
    status = 409
