"""`manage.py up`: one command starts everything, and everything ends with it."""

from __future__ import annotations

import os
import signal
import time

import pytest

from config.process import ANSWERS_WITHIN_SECONDS
from tests.e2e.installation import PATIENCE_SECONDS, Installation
from tests.uploading import half_an_upload
from verbatim_client import Attachment


@pytest.mark.long
def test_one_command_answers_a_question_and_a_second_start_keeps_everything(
    installation: Installation,
) -> None:
    first = installation.up_and_serving()
    demo = installation.demo()
    assert (installation.var / "demo.json").stat().st_mode & 0o777 == 0o600
    assert demo["url"] == f"http://localhost:{installation.port}/"
    assert demo["admin"]["password"] in installation.printed()
    assert demo["api_key"] in installation.printed()
    found = installation.search("How do we roll back a deployment?")
    assert "choose **Roll back**" in found["passages"][0]["text"]

    second = installation.up()
    assert second.wait(PATIENCE_SECONDS) == 1
    assert f"Port {installation.port} of 127.0.0.1 cannot be used" in installation.printed()
    assert installation.search("How do we roll back a deployment?")["passages"]

    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_SECONDS) == 0
    assert installation.children() == []
    assert installation.servers() == []

    again = installation.up_and_serving()
    assert installation.demo() == demo
    later = installation.search("How do we roll back a deployment?")
    assert [p["chunk_id"] for p in later["passages"]] == [p["chunk_id"] for p in found["passages"]]
    again.send_signal(signal.SIGINT)
    assert again.wait(PATIENCE_SECONDS) == 0
    assert installation.children() == []
    assert installation.servers() == []


@pytest.mark.faults
def test_what_is_being_answered_is_finished_unless_it_is_told_twice(
    installation: Installation,
) -> None:
    process = installation.up_and_serving()
    headers = {"Authorization": f"Bearer {installation.demo()['api_key']}"}
    upload, rest = half_an_upload(installation.port, headers)
    process.send_signal(signal.SIGTERM)
    with upload:
        time.sleep(12)
        upload.sendall(rest)
        assert upload.recv(64).startswith(b"HTTP/1.1 201 ")
    assert process.wait(PATIENCE_SECONDS) == 0

    process = installation.up_and_serving()
    upload, _ = half_an_upload(installation.port, headers)
    with upload:
        process.send_signal(signal.SIGINT)
        installation.wait(lambda: len(installation.children()) == 1)
        assert installation.child("web").is_running()
        process.send_signal(signal.SIGINT)
        assert process.wait(ANSWERS_WITHIN_SECONDS / 2) == 0
    assert installation.children() == []
    assert installation.servers() == []


@pytest.mark.faults
@pytest.mark.parametrize("name", ["web", "worker", "beat"])
def test_when_one_process_dies_all_stop_and_it_is_named(
    installation: Installation, name: str
) -> None:
    process = installation.up_and_serving()
    installation.child(name).kill()
    assert process.wait(PATIENCE_SECONDS) == 1
    assert f"The {name} process ended by signal 9" in installation.printed()
    assert installation.children() == []
    assert installation.servers() == []


@pytest.mark.faults
def test_after_a_kill_of_up_its_processes_end_and_a_new_one_serves(
    installation: Installation,
) -> None:
    process = installation.up_and_serving()
    process.kill()
    process.wait()
    installation.wait(lambda: installation.children() == [])
    assert installation.servers() != []
    again = installation.up_and_serving()
    assert installation.search("How big is the learning budget?")["passages"]
    again.send_signal(signal.SIGTERM)
    assert again.wait(PATIENCE_SECONDS) == 0
    assert installation.servers() == []


@pytest.mark.faults
def test_after_a_kill_of_everything_at_once_a_new_one_serves(installation: Installation) -> None:
    process = installation.up_and_serving()
    demo = installation.demo()
    everything = [process.pid, *(child.pid for child in installation.children())]
    for pid in [*everything, *installation.servers()]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    installation.up_and_serving()
    assert installation.demo() == demo
    assert installation.search("How big is the learning budget?")["passages"]


@pytest.mark.faults
def test_what_was_attached_before_a_kill_of_everything_is_ingested_after_it(
    installation: Installation,
) -> None:
    """On the real broker, worker and database: nothing lost, nothing twice, within a minute."""
    process = installation.up_and_serving()
    texts = [f"# Note {n}\n\nThe quokka number {n} runs.\n" for n in range(6)]
    with installation.client() as client:
        sent = [
            client.attach_to_conversation(
                text.encode(), "note.md", conversation_id=f"c-{n}", actor="principal"
            )["attachment_id"]
            for n, text in enumerate([*texts, texts[0]])
        ]
    everything = [process.pid, *(child.pid for child in installation.children())]
    for pid in [*everything, *installation.servers()]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    installation.up_and_serving()
    started = time.monotonic()

    with installation.client() as client:

        def states() -> list[Attachment]:
            return [client.attachment(one) for one in sent]

        installation.wait(lambda: all(one["state"] == "ingested" for one in states()))
        assert time.monotonic() - started < 60
        documents = {one["document_id"] for one in states() if one["document_id"]}
        assert len(documents) == 6
        for document in documents:
            assert [version["version"] for version in client.versions(document)] == [1]
        gone = client.delete_conversation("c-1")
        assert [one["outcome"] for one in gone["documents"]] == ["deleted"]
        kept = client.delete_conversation("c-0")
        assert [one["outcome"] for one in kept["documents"]] == ["kept"]
