"""Vectors go with their chunks, and only an admitted one has any."""

from django.db import migrations

# By the database itself, so that they go too where the app is no longer installed. Only an admitted
# chunk has an `admitted_id`.
OF_ADMITTED = migrations.RunSQL(
    sql=(
        "ALTER TABLE semantic_chunk_vector ADD CONSTRAINT chunk_vector_of_admitted"
        " FOREIGN KEY (chunk) REFERENCES knowledge_chunk (admitted_id) ON DELETE CASCADE"
    ),
    reverse_sql="ALTER TABLE semantic_chunk_vector DROP CONSTRAINT chunk_vector_of_admitted",
)
OF_SPACE = migrations.RunSQL(
    sql=(
        "ALTER TABLE semantic_chunk_vector ADD CONSTRAINT chunk_vector_of_embedding_space"
        " FOREIGN KEY (embedding) REFERENCES semantic_embedding_space (id)"
    ),
    reverse_sql=(
        "ALTER TABLE semantic_chunk_vector DROP CONSTRAINT chunk_vector_of_embedding_space"
    ),
)


class Migration(migrations.Migration):
    dependencies = [("semantic", "0001_tables")]

    operations = [OF_ADMITTED, OF_SPACE]
