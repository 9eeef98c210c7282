"""Row-level security on the tables of artifacts that have a tenant."""

from django.db import migrations

from access.tenancy import tenant_isolation

# A descriptor is made and removed, never changed: its id is the hash of what it says.
IMMUTABLE = migrations.RunSQL(
    sql=[
        """
        CREATE FUNCTION artifacts_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            RAISE EXCEPTION 'a source descriptor cannot be changed'
                USING ERRCODE = 'integrity_constraint_violation';
        END $$
        """,
        (
            "CREATE TRIGGER artifacts_immutable BEFORE UPDATE ON artifacts_sourcedescriptor"
            " FOR EACH ROW EXECUTE FUNCTION artifacts_refuse_change()"
        ),
    ],
    reverse_sql=[
        "DROP TRIGGER artifacts_immutable ON artifacts_sourcedescriptor",
        "DROP FUNCTION artifacts_refuse_change()",
    ],
)


class Migration(migrations.Migration):
    dependencies = [("artifacts", "0001_initial"), ("access", "0002_isolation")]

    operations = [
        tenant_isolation("artifacts_artifact"),
        tenant_isolation("artifacts_upload"),
        tenant_isolation("artifacts_uploadpiece"),
        tenant_isolation("artifacts_uploadquota"),
        tenant_isolation("artifacts_sourcedescriptor"),
        IMMUTABLE,
    ]
