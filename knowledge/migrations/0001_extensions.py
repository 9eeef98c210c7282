"""The extensions that the index is built on. `vector` needs a superuser unless it is there."""

from django.contrib.postgres.operations import BtreeGinExtension
from django.db import migrations
from pgvector.django import VectorExtension


class Migration(migrations.Migration):
    initial = True

    dependencies = [("artifacts", "0002_isolation")]

    operations = [VectorExtension(), BtreeGinExtension()]
