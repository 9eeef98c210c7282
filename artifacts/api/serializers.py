"""Shapes of the artifact calls."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from artifacts.models import Artifact
from artifacts.store import ATTRIBUTION_LIMIT


class UploadSerializer(serializers.Serializer[Any]):
    file = serializers.FileField(allow_empty_file=True, max_length=None)
    media_type = serializers.CharField(required=False, allow_blank=True, default="", max_length=255)
    attribution = serializers.CharField(
        required=False, allow_blank=True, default="", max_length=ATTRIBUTION_LIMIT
    )


class ArtifactSerializer(serializers.ModelSerializer[Artifact]):
    artifact_id = serializers.UUIDField(source="id", read_only=True)

    class Meta:
        model = Artifact
        fields = (
            "artifact_id",
            "sha256",
            "byte_size",
            "media_type",
            "filename",
            "attribution",
            "origin",
            "created_at",
            "expires_at",
        )
        read_only_fields = fields
