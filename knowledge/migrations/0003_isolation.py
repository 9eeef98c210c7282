"""Row-level security on the tables with a tenant, and how the index row lies on disk."""

from django.db import migrations

from access.tenancy import tenant_isolation

# Inline and never compressed, the sparse vectors of 200,000 chunks are read half again as fast;
# the tsvectors stand out of line so as not to be read with them.
INDEX_STORAGE = migrations.RunSQL(
    sql=[
        "ALTER TABLE knowledge_chunk_index SET (fillfactor = 100, toast_tuple_target = 128)",
        "ALTER TABLE knowledge_chunk_index ALTER COLUMN tsv SET STORAGE external",
        "ALTER TABLE knowledge_chunk_index ALTER COLUMN sv SET STORAGE plain",
    ],
    reverse_sql=migrations.RunSQL.noop,
)

# Only an admitted chunk has an `admitted_id`, so the index can hold no row of another one.
INDEX_OF_ADMITTED = migrations.RunSQL(
    sql=(
        "ALTER TABLE knowledge_chunk_index ADD CONSTRAINT chunk_index_of_admitted"
        " FOREIGN KEY (chunk) REFERENCES knowledge_chunk (admitted_id)"
        " DEFERRABLE INITIALLY DEFERRED"
    ),
    reverse_sql="ALTER TABLE knowledge_chunk_index DROP CONSTRAINT chunk_index_of_admitted",
)

# A revision is made, and goes with its record; nobody writes history anew.
REVISIONS_STAY = migrations.RunSQL(
    sql=[
        """
        CREATE FUNCTION knowledge_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'a revision of a record cannot be changed'
                USING ERRCODE = 'integrity_constraint_violation';
        END $$
        """,
        (
            "CREATE TRIGGER knowledge_revision_stays BEFORE UPDATE ON knowledge_recordrevision"
            " FOR EACH ROW EXECUTE FUNCTION knowledge_refuse_change()"
        ),
    ],
    reverse_sql=[
        "DROP TRIGGER knowledge_revision_stays ON knowledge_recordrevision",
        "DROP FUNCTION knowledge_refuse_change()",
    ],
)


class Migration(migrations.Migration):
    dependencies = [("knowledge", "0002_tables")]

    operations = [
        tenant_isolation("knowledge_visibilityspace"),
        tenant_isolation("knowledge_document"),
        tenant_isolation("knowledge_documentversion"),
        tenant_isolation("knowledge_chunkset"),
        tenant_isolation("knowledge_chunk"),
        tenant_isolation("knowledge_unfinishedversion"),
        tenant_isolation("knowledge_ingestjob"),
        tenant_isolation("knowledge_knowledgeevent"),
        tenant_isolation("knowledge_refusalcount"),
        tenant_isolation("knowledge_recalltrace"),
        tenant_isolation("knowledge_tracedpassage"),
        tenant_isolation("knowledge_conversation"),
        tenant_isolation("knowledge_attachment"),
        tenant_isolation("knowledge_retentionproposal"),
        tenant_isolation("knowledge_piipolicy"),
        tenant_isolation("knowledge_bulktask"),
        tenant_isolation("knowledge_bulkitem"),
        tenant_isolation("knowledge_citedanswer"),
        tenant_isolation("knowledge_citation"),
        tenant_isolation("knowledge_dailyfigures"),
        tenant_isolation("knowledge_preturnpolicy"),
        tenant_isolation("knowledge_armswitch"),
        tenant_isolation("knowledge_deletion"),
        tenant_isolation("knowledge_deletedchunk"),
        tenant_isolation("knowledge_goldenset"),
        tenant_isolation("knowledge_goldenquestion"),
        tenant_isolation("knowledge_goldenanswer"),
        tenant_isolation("knowledge_goldenrun"),
        tenant_isolation("knowledge_goldenresult"),
        tenant_isolation("knowledge_record"),
        tenant_isolation("knowledge_recordrevision"),
        tenant_isolation("knowledge_recordsource"),
        tenant_isolation("knowledge_search_change"),
        INDEX_STORAGE,
        INDEX_OF_ADMITTED,
        REVISIONS_STAY,
    ]
