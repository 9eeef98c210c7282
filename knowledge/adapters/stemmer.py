"""Words to lexemes by PostgreSQL's own dictionaries, so that index and query stem alike."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Final

from django.contrib.postgres.search import SearchVector
from django.db import DEFAULT_DB_ALIAS
from django.db.models import TextField, Value
from django.db.models.sql import Query
from django.db.models.sql.constants import SINGLE

from knowledge.core.analysis import fold

UNSTEMMED: Final = "simple"

# A tsvector numbers positions up to 16,383 and holds at most 1 MB of lexemes.
_BATCH_WORDS: Final = 15_000
_BATCH_BYTES: Final = 400_000
# Two columns each; PostgreSQL selects at most 1,664.
_WORDS_ALONE: Final = 200
_REMEMBERED: Final = 50_000

_ENTRY: Final = re.compile(r"'((?:[^']|'')*)':([0-9,A-D]+)")


class PostgresStemmer:
    """The port `Stemmer` over a database's text-search configurations.

    All words of a call are analysed as one text in one statement. That every word is one token of
    the parser is checked, not assumed, against the configuration that neither stems nor drops;
    a batch that does not line up is done again word by word. Answers are remembered in the
    process, the least recently used of a language forgotten first.
    """

    def __init__(self, using: str = DEFAULT_DB_ALIAS, *, remembered: int = _REMEMBERED) -> None:
        self._using = using
        self._limit = remembered
        self._known: defaultdict[str, OrderedDict[str, str | None]] = defaultdict(OrderedDict)
        self._lock = Lock()

    def lexemes(self, words: Sequence[str], language: str) -> Mapping[str, str | None]:
        """The lexeme of each word, `None` for a stop word of the language.

        `language` is the name of a configuration that the database has. A word that is no single
        token for PostgreSQL is its own lexeme. One with accents is a stop word by its accents
        (`für`, but not `a` for `à`), and its lexeme is that of the word without them.
        """
        folded = {
            word: fold(word) if word.isalpha() and not word.isascii() else word for word in words
        }
        if language == UNSTEMMED:
            return folded
        known = self._lexemes([*folded, *folded.values()], language)
        return {word: known[word] and known[plain] for word, plain in folded.items()}

    def _lexemes(self, words: Sequence[str], language: str) -> dict[str, str | None]:
        wanted = dict.fromkeys(words)
        answer = self._remembered(wanted, language)
        missing = [word for word in wanted if word not in answer]
        for batch in _batches(missing):
            found = self._together(batch, language)
            if found is None:
                found = {}
                for start in range(0, len(batch), _WORDS_ALONE):
                    found |= self._alone(batch[start : start + _WORDS_ALONE], language)
            self._remember(found, language)
            answer |= found
        return answer

    def _remembered(self, words: Mapping[str, None], language: str) -> dict[str, str | None]:
        answer = {}
        with self._lock:
            known = self._known[language]
            for word in words:
                if word in known:
                    known.move_to_end(word)
                    answer[word] = known[word]
        return answer

    def _remember(self, found: Mapping[str, str | None], language: str) -> None:
        with self._lock:
            known = self._known[language]
            known.update(found)
            while len(known) > self._limit:
                known.popitem(last=False)

    def _together(self, batch: Sequence[str], language: str) -> dict[str, str | None] | None:
        """The lexemes of words analysed as one text; `None` when they do not line up."""
        plain, stemmed = self._vectors([" ".join(batch)], language)[0]
        if [plain.get(position) for position in range(1, len(batch) + 1)] != list(batch):
            return None
        return {word: stemmed.get(position) for position, word in enumerate(batch, start=1)}

    def _alone(self, batch: Sequence[str], language: str) -> dict[str, str | None]:
        vectors = self._vectors(batch, language)
        return {
            word: stemmed.get(1) if len(plain) == 1 else word
            for word, (plain, stemmed) in zip(batch, vectors, strict=True)
        }

    def _vectors(
        self, texts: Sequence[str], language: str
    ) -> list[tuple[dict[int, str], dict[int, str]]]:
        """For each text its tokens and its lexemes by position, in one statement."""
        query = Query(None)
        for number, text in enumerate(texts):
            value = Value(text, output_field=TextField())
            query.add_annotation(SearchVector(value, config=UNSTEMMED), f"plain{number}")
            query.add_annotation(SearchVector(value, config=language), f"stemmed{number}")
        row = query.get_compiler(using=self._using).execute_sql(SINGLE)
        columns = [_by_position(column) for column in row]
        return list(zip(columns[::2], columns[1::2], strict=True))


def _batches(words: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for word in words:
        size += len(word.encode()) + 1
        if batch and (len(batch) >= _BATCH_WORDS or size > _BATCH_BYTES):
            yield batch
            batch, size = [], len(word.encode()) + 1
        batch.append(word)
    if batch:
        yield batch


def _by_position(vector: str) -> dict[int, str]:
    places: dict[int, str] = {}
    for lexeme, positions in _ENTRY.findall(vector):
        for position in positions.split(","):
            places[int(position.rstrip("ABCD"))] = lexeme.replace("''", "'").replace("\\\\", "\\")
    return places
