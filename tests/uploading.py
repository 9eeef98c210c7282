"""Uploads in pieces as a client makes them."""

from __future__ import annotations

import hashlib
import random
import socket
from typing import Any
from uuid import UUID

import httpx

from access.principal import Principal
from access.tenancy import operations_session
from artifacts import store, uploads
from artifacts.models import Artifact, Upload, UploadPiece
from artifacts.uploads import LARGEST_PIECE, Piece, Receipt

TOLD = {"filename": "log.bin", "media_type": "", "attribution": "the field team"}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def piece(offset: int, content: bytes, *, final: bool = False, sha256: str = "") -> Piece:
    return Piece(offset=offset, content=content, sha256=sha256 or sha(content), final=final)


def pieces(content: bytes, chance: random.Random | None = None, *, start: int = 0) -> list[Piece]:
    """The rest of a file in pieces, of the largest size or of random ones."""
    made = []
    while True:
        size = chance.randint(1, LARGEST_PIECE) if chance else LARGEST_PIECE
        end = min(start + size, len(content))
        made.append(piece(start, content[start:end], final=end == len(content)))
        if end == len(content):
            return made
        start = end


def send(by: Principal, request_id: UUID, one: Piece, **told: str) -> Receipt:
    return uploads.attach(by, request_id, one, **{**TOLD, **told})


def stored(by: Principal, artifact_id: UUID | None) -> bytes:
    assert artifact_id is not None
    return store.read_bytes(store.get(by, artifact_id))


def journal() -> list[Any]:
    """Every row that an upload touches, whole: equal before and after what changes nothing."""
    with operations_session():
        return [
            list(model.objects.order_by("pk").values()) for model in (Upload, UploadPiece, Artifact)
        ]


def half_an_upload(port: int, headers: dict[str, str]) -> tuple[socket.socket, bytes]:
    """A connection to a web process over which half of a file has come, and the other half."""
    request = httpx.Request(
        "POST",
        f"http://127.0.0.1:{port}/v1/artifacts",
        headers=headers,
        files={"file": ("log.txt", b"x" * 200_000)},
    )
    body = request.read()
    head = f"POST {request.url.path} HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in request.headers.items()
    )
    upload = socket.create_connection(("127.0.0.1", port), 60)
    upload.sendall(head.encode() + b"\r\n" + body[: len(body) // 2])
    return upload, body[len(body) // 2 :]
