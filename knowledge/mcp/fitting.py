"""Answers that a client takes whole: within a number of tokens, and nothing cut in two.

Clients refuse or cut what is longer. What does not fit is asked for again in a smaller portion, or
left out and counted; a passage is there whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from access.errors import VerbatimError
from knowledge.core.ports import TokenCounter

Ask = Callable[[Mapping[str, Any]], dict[str, Any]]
# What the words and marks around a list take up, with room for a note about it.
_AROUND: Final = 200


class AnswerTooLarge(VerbatimError):
    """The answer is longer than clients of this installation take."""

    code = "answer_too_large"
    status = 413


class Fitting:
    """Asks tools so that what they answer stays within `limit` tokens of JSON."""

    def __init__(self, limit: int, tokens: TokenCounter) -> None:
        self._limit = limit
        self._tokens = tokens

    def ask(self, tool: str, arguments: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        """The answer of a tool; raises what asking raises, and `AnswerTooLarge`."""
        way = _WAYS.get(tool, Fitting._plain)
        answer = way(self, arguments, ask)
        if self._size(answer) > self._limit:
            raise AnswerTooLarge(f"The answer would have more than {self._limit} tokens.")
        return answer

    def problem(self, members: dict[str, Any]) -> dict[str, Any]:
        """A problem with as many of its findings as fit, and how many more there are."""
        if self._size(members) <= self._limit:
            return members
        lists = {name: value for name, value in members.items() if isinstance(value, list)}
        rest = {name: value for name, value in members.items() if name not in lists}
        for name, entries in lists.items():
            rest[name] = self._leading(entries, self._limit - self._size(rest) - _AROUND)
            rest[f"more_{name}"] = len(entries) - len(rest[name])
        return rest

    def _plain(self, arguments: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        return ask(arguments)

    def _search(self, arguments: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        """Searches anew for fewer passages, so that the block and the trace are of those shown."""
        notes = []
        answer = ask(arguments)
        while self._size(found := answer | {"omitted": []}) + _AROUND > self._limit:
            passages = answer["passages"]
            # Each stands there twice: in the list, and in the block or the search results.
            costs = [2 * self._size(one) for one in passages]
            around = self._size(found) - sum(costs)
            fewer = min(self._that_fit(costs, max(around, 0)), len(passages) - 1)
            if fewer < 1:
                break
            notes = [f"Only {fewer} passages, for an answer has at most {self._limit} tokens."]
            answer = ask({**arguments, "max_passages": fewer})
        answer["notes"] += notes
        omitted = answer["omitted"]
        room = self._limit - self._size(answer | {"omitted": []}) - _AROUND
        answer["omitted"] = self._leading(omitted, room)
        if unlisted := len(omitted) - len(answer["omitted"]):
            answer["notes"].append(f"{unlisted} more passages were left out and are not listed.")
        return answer

    def _ingest(self, arguments: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        answer = ask(arguments)
        if "chunk_ids" in answer and self._size(answer) > self._limit:
            ids = answer["chunk_ids"]
            room = self._limit - self._size(answer | {"chunk_ids": []}) - _AROUND
            answer["chunk_ids"] = self._leading(ids, room)
            answer["report"]["warnings"].append(
                f"{len(ids) - len(answer['chunk_ids'])} more chunk ids are not listed here."
            )
        return answer

    def _attachment(self, arguments: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        """A shorter part: `next_offset` says where to go on, as ever."""
        answer = ask(arguments)
        while (size := self._size(answer)) > self._limit:
            length = (answer["next_offset"] or answer["size"]) - answer["offset"]
            shorter = length * (self._limit - _AROUND) // size
            if shorter < 1:
                break
            answer = ask({**arguments, "length": shorter})
        return answer

    def _quotes(self, arguments: Mapping[str, Any], ask: Ask) -> dict[str, Any]:
        answer = ask(arguments)
        if self._size(answer) > self._limit:
            fit = self._leading(answer["results"], self._limit - _AROUND)
            raise AnswerTooLarge(
                f"The answer would have more than {self._limit} tokens. Ask for the first"
                f" {max(len(fit), 1)} quotes, then for the others."
            )
        return answer

    def _leading(self, entries: Sequence[Any], room: int) -> list[Any]:
        costs = [self._size(entry) for entry in entries]
        return list(entries[: self._that_fit(costs, self._limit - room)])

    def _that_fit(self, costs: Sequence[int], taken: int) -> int:
        """How many of the first fit beside what is taken."""
        for number, cost in enumerate(costs):
            taken += cost + 1
            if taken + _AROUND > self._limit:
                return number
        return len(costs)

    def _size(self, value: Any) -> int:
        return self._tokens.count(spelled(value))


def spelled(value: Any) -> str:
    """JSON as it is sent: in one line, and letters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_WAYS: Final[dict[str, Callable[[Fitting, Mapping[str, Any], Ask], dict[str, Any]]]] = {
    "knowledge.search": Fitting._search,  # noqa: SLF001 - the table of this class
    "knowledge.ingest": Fitting._ingest,  # noqa: SLF001
    "knowledge.attachment": Fitting._attachment,  # noqa: SLF001
    "knowledge.verify_quote": Fitting._quotes,  # noqa: SLF001
}
