"""Which text-search configuration of PostgreSQL a document is analysed with."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

import regex
from py3langid.langid import MODEL_FILE, LanguageIdentifier

UNSURE = "simple"

_CONFIGURATIONS = {
    **dict.fromkeys(("ar", "ary", "arz"), "arabic"),
    "hy": "armenian",
    "eu": "basque",
    "ca": "catalan",
    "da": "danish",
    "nl": "dutch",
    "en": "english",
    "fi": "finnish",
    "fr": "french",
    "de": "german",
    "el": "greek",
    "hi": "hindi",
    "hu": "hungarian",
    "id": "indonesian",
    "ga": "irish",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    **dict.fromkeys(("no", "nb", "nn"), "norwegian"),
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "es": "spanish",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}

LANGUAGES = frozenset({UNSURE, *_CONFIGURATIONS.values()})
"""The configurations that a document can be in; a request may name any of them."""

_WINDOW = 1_000
_FEWEST_LETTERS = 24
_LEAST_PROBABILITY = 0.6
_MOST_CODE = 0.1
_MOST_UNSPACED = 0.2

_FENCE = regex.compile(r"^ {0,3}(```|~~~)[^\n]*\n.*?(?:^ {0,3}\1[^\n]*$|\Z)", regex.M | regex.S)
_LETTER = regex.compile(r"\p{L}")
_CODE = regex.compile(r"[{}()\[\];=<>_/\\|&*$@#+^~]")
# Scripts that are written without spaces: no stemmer of PostgreSQL serves them.
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
)


class Py3LangidDetector:
    """Detects by `py3langid`, and says `simple` unless it is rather sure.

    Looks at no more than three windows of 1,000 characters (the beginning, the middle and the
    end), without fenced code. Unsure means: fewer than 24 letters; more than a tenth of what is
    not white space is punctuation of code; more than a fifth of the letters are of a script
    written without spaces; or a probability below 0.6 for the configuration that wins, summed
    over its languages. Deterministic; safe to share between threads.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._identifier: LanguageIdentifier | None = None

    def detect(self, text: str) -> str:
        sample = _FENCE.sub("", _sampled(text))
        letters = len(_LETTER.findall(sample))
        if (
            letters < _FEWEST_LETTERS
            or len(_UNSPACED.findall(sample)) > letters * _MOST_UNSPACED
            or len(_CODE.findall(sample)) > len("".join(sample.split())) * _MOST_CODE
        ):
            return UNSURE
        probabilities: dict[str, float] = defaultdict(float)
        for language, probability in self._loaded().rank(sample):
            probabilities[_CONFIGURATIONS.get(language, language)] += probability
        best = max(sorted(probabilities), key=lambda name: probabilities[name])
        known = best in _CONFIGURATIONS.values()
        return best if known and probabilities[best] >= _LEAST_PROBABILITY else UNSURE

    def _loaded(self) -> LanguageIdentifier:
        with self._lock:
            if self._identifier is None:
                self._identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
            return self._identifier


def _sampled(text: str) -> str:
    if len(text) <= 3 * _WINDOW:
        return text
    middle = (len(text) - _WINDOW) // 2
    return "\n".join((text[:_WINDOW], text[middle : middle + _WINDOW], text[-_WINDOW:]))
