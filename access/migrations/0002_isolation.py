"""Row-level security on the tables of access that have a tenant."""

from django.db import migrations

from access.tenancy import tenant_isolation


class Migration(migrations.Migration):
    dependencies = [("access", "0001_initial")]

    operations = [
        tenant_isolation("access_apikey"),
        tenant_isolation("access_operator"),
        tenant_isolation("access_idempotentanswer"),
    ]
