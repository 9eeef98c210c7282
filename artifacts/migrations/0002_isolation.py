"""Row-level security on the tables of artifacts that have a tenant."""

from django.db import migrations

from access.tenancy import tenant_isolation


class Migration(migrations.Migration):
    dependencies = [("artifacts", "0001_initial"), ("access", "0002_isolation")]

    operations = [tenant_isolation("artifacts_artifact")]
