"""The embedder over HTTP, against a server of our own on this machine."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from knowledge.adapters.embedders import endpoint
from knowledge.adapters.embedders.configuration import EndpointConfiguration
from knowledge.adapters.embedders.endpoint import EndpointEmbedder
from knowledge.adapters.embedding import EmbedderFailed, embed
from knowledge.core.errors import EmbedderError

WORDS = "the zebra pump of hall four"


@dataclass
class Server:
    """Answers as it is told: a status, headers and a body for each request, then vectors."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    pause: float = 0.0
    shuffled: bool = False


@pytest.fixture
def server() -> Iterator[Server]:
    told, over = Server(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.times.append(time.monotonic())
            told.keys.append(self.headers.get("Authorization"))
            told.asked.append({"path": self.path, **body})
            over.wait(told.pause)
            status, headers, answer = (
                told.answers.pop(0) if told.answers else (200, {}, vectors(body["input"]))
            )
            if told.shuffled:
                answer = {"data": answer["data"][::-1]}
            content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            with contextlib.suppress(ConnectionError):  # who has not waited hears no answer
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        http.shutdown()
        http.server_close()
        thread.join()


def vectors(texts: list[str]) -> dict[str, Any]:
    return {
        "data": [
            {"index": number, "embedding": [float(len(text)), 1.0, 2.0]}
            for number, text in enumerate(texts)
        ]
    }


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_FIRST_PAUSE", 0.01)


def embedder(server: Server, **given: Any) -> EndpointEmbedder:
    return EndpointEmbedder(
        EndpointConfiguration(
            **{"url": server.url, "model": "small", "dimensions": 3, "timeout": 5.0, **given}
        )
    )


def test_texts_go_in_batches_and_come_back_in_order(server: Server) -> None:
    server.shuffled = True
    texts = ["x" * length for length in range(1, 8)]
    found = embedder(server, batch=3).embed(texts)
    assert [vector[0] for vector in found] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert [len(asked["input"]) for asked in server.asked] == [3, 3, 1]
    assert {asked["path"] for asked in server.asked} == {"/v1/embeddings"}
    assert all("dimensions" not in asked for asked in server.asked)


def test_a_long_text_goes_in_windows_and_comes_back_as_one(server: Server) -> None:
    (vector,) = embedder(server, window=10).embed(["a" * 25])
    assert [len(text) for text in server.asked[0]["input"]] == [9, 9, 7]
    assert len(vector) == 3


def test_prefixes_and_dimensions_are_the_models_own(server: Server) -> None:
    made = embedder(
        server, asks_for_dimensions=True, passage_prefix="passage: ", question_prefix="query: "
    )
    made.embed(["pump"])
    made.embed_question("pump?")
    assert [asked["input"] for asked in server.asked] == [["passage: pump"], ["query: pump?"]]
    assert {asked["dimensions"] for asked in server.asked} == {3}
    assert made.model == "small/3", "vectors of another length are another model's"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_passes_is_tried_again(server: Server, status: int) -> None:
    server.answers = [(status, {}, {}), (status, {}, {})]
    assert embedder(server).embed(["pump"])
    assert len(server.asked) == 3


def test_it_waits_as_long_as_the_server_asks_for(server: Server) -> None:
    server.answers = [(429, {"Retry-After": "1"}, {})]
    embedder(server).embed(["pump"])
    assert server.times[1] - server.times[0] >= 1.0


@pytest.mark.usefixtures("quick")
def test_it_gives_up_after_a_while(server: Server) -> None:
    server.answers = [(503, {}, {})] * 20
    with pytest.raises(EmbedderError, match="answered 503"):
        embedder(server).embed(["pump"])
    assert len(server.asked) == endpoint.ATTEMPTS


@pytest.mark.parametrize("status", [400, 401, 403, 404, 301])
def test_what_does_not_pass_is_not_tried_again(server: Server, status: int) -> None:
    server.answers = [(status, {"Location": server.url}, {})] * 2
    with pytest.raises(EmbedderError, match=f"answered {status}"):
        embedder(server).embed(["pump"])
    assert len(server.asked) == 1


def test_a_question_is_asked_once_and_not_waited_for_long(server: Server) -> None:
    server.pause = 30
    made = embedder(server, question_timeout=0.2)
    started = time.monotonic()
    with pytest.raises(EmbedderError, match="not reached"):
        made.embed_question("pump?")
    assert time.monotonic() - started < 20
    server.pause = 0
    server.answers = [(503, {}, {})]
    with pytest.raises(EmbedderError):
        embedder(server).embed_question("pump?")
    assert len(server.asked) == 2


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_not_there(server: Server) -> None:
    with pytest.raises(EmbedderError, match="not reached"):
        embedder(server, url="http://127.0.0.1:9/v1").embed(["pump"])


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            {"data": [{"index": 0, "embedding": [1, 2]}]},
            "2 dimensions and EMBEDDER_DIMENSIONS is 3",
        ),
        ({"data": []}, "0 vectors for 1 texts"),
        ({"error": "no"}, "not one of embeddings"),
        ("<html>", "not one of embeddings"),
        ({"data": [{"index": 0, "embedding": ["a", "b", "c"]}]}, "not one of embeddings"),
    ],
)
def test_an_answer_that_is_none(server: Server, answer: Any, told: str) -> None:
    server.answers = [(200, {}, answer)]
    with pytest.raises(EmbedderError, match=told):
        embedder(server).embed(["pump"])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "fail",
    [
        lambda server: server.answers.extend([(401, {}, {})]),
        lambda server: server.answers.extend([(503, {}, {})] * 9),
        lambda server: server.answers.extend([(200, {}, "<html>")]),
        lambda server: None,
    ],
    ids=["refused", "busy", "nonsense", "well"],
)
def test_key_and_words_are_in_no_error_and_no_log(
    server: Server, fail: Callable[[Server], None], caplog: pytest.LogCaptureFixture
) -> None:
    key = "key-" + secrets.token_urlsafe(24)
    fail(server)
    made = embedder(server, api_key=key)
    with caplog.at_level(logging.DEBUG):
        try:
            embed(made, [WORDS])
            told = ""
        except EmbedderFailed as failed:
            told = f"{failed!r} {failed.__cause__!r} {failed.__context__!r}"
    assert set(server.keys) == {f"Bearer {key}"}
    configured = EndpointConfiguration(url=server.url, model="m", dimensions=3, api_key=key)
    for text in (told, caplog.text, repr(configured), repr(made)):
        assert key not in text
        assert WORDS not in text


def test_without_a_key_none_is_sent(server: Server) -> None:
    embedder(server).embed(["pump"])
    assert server.keys == [None]
