"""The disposable child: one request in, one answer out, then it is gone.

Request and answer are an 8-byte length and that much JSON; the file's bytes follow the request.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

from knowledge.adapters.reading.answers import NoText, Reading, Reason
from knowledge.adapters.reading.confinement import confine, end_with_input

LENGTH = 8
OUT_OF_MEMORY = 70
"""The exit status of a child that has not even the memory to say so."""

_FRAMES = 8
_FORMATS = frozenset({"pdf", "html", "docx"})


def main() -> None:
    out = os.dup(1)
    # Whatever a library prints is nobody's business.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        request = json.loads(_read(int.from_bytes(_read(LENGTH), "big")))
        confine(
            parent=request["parent"], seconds=request["seconds"], memory=request["memory_bytes"]
        )
        content = _read(request["content_bytes"])
        end_with_input(0)
        answer = _encoded(_answer(request, content), request["answer_bytes"])
        _write(out, len(answer).to_bytes(LENGTH, "big"))
        _write(out, answer)
    except MemoryError:
        os._exit(OUT_OF_MEMORY)
    # The interpreter's own end could be long, with much to free.
    os._exit(0)


def _answer(request: dict[str, Any], content: bytes) -> dict[str, Any]:
    try:
        name = request["format"] if request["format"] in _FORMATS else ""
        reader = import_module(f"knowledge.adapters.reading.{name}")
        read = cast("Callable[[bytes], Reading | dict[str, Any]]", getattr(reader, request["task"]))
        found = read(content)
    except NoText as refused:
        return {"refused": refused.reason, "detail": refused.detail, "members": refused.members}
    except MemoryError:
        return {"refused": Reason.MEMORY}
    except Exception as error:  # noqa: BLE001 - a hostile file makes libraries raise anything
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        return {
            "refused": Reason.UNREADABLE,
            # The kind and the place of an error, never its message: messages quote the file.
            "error": type(error).__name__,
            "stack": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
        }
    return {"found": asdict(found) if isinstance(found, Reading) else found}


def _encoded(answer: dict[str, Any], limit: int) -> bytes:
    """The answer as JSON, or in its place that it is too large."""
    # Surrogates that slipped through are no reason to lose the document.
    encoded = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    if len(encoded) > limit:
        return json.dumps({"refused": Reason.TOO_LARGE}).encode()
    return encoded


def _read(size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(0, min(size - len(parts), 1 << 20))
        if not part:
            os._exit(1)
        parts += part
    return bytes(parts)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
