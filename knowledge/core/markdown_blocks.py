"""Markdown's blocks by the rules of `markdown-it-py`, at a multiple of its speed.

The library tries each of its eleven rules on every line, several of them again on every line of a
paragraph. Most rules begin with a look at the first character of the line; here that look comes
first and chooses the rules. A paragraph, and a heading underlined below it, are found in one pass
where the library makes two. A paragraph is one token, and what is inside paragraphs, code and HTML
is left out, for nobody here asks for it; else the tokens are the library's, and a test holds the two
against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Literal, cast

from markdown_it import MarkdownIt
from markdown_it.common.utils import mdTrim
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

_Rule = Callable[[StateBlock, int, int, bool], bool]

# Levels of quotes and lists that are told apart; deeper ones are still text, of one block.
DEEPEST_NESTING = 60
_CHAINS = ("", "paragraph", "reference", "blockquote", "list")
# What the first visible character of a line must be for a rule to match it.
_FIRST = {
    "fence": "`~",
    "blockquote": ">",
    "hr": "*-_",
    "list": "*-+0123456789",
    "reference": "[",
    "html_block": "<",
    "heading": "#",
}
_CODE_INDENT = 4


def block_tokens(text: str) -> list[Token]:
    """The block tokens of a Markdown text, with their line maps."""
    # The block parser alone: the full one turns a lone CR into a line end, which would shift
    # every line number after it, and reads inline markup, which nothing here needs.
    tokens: list[Token] = []
    parser = _parser()
    state = _State(text, parser, {}, tokens)
    parser.block.tokenize(state, 0, state.lineMax)
    return tokens


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": DEEPEST_NESTING}).enable("table")
    parser.block.ruler = cast("Any", _Chains(parser))
    return parser


class _Chains:
    """In the place of the library's ruler: for each chain of rules one that chooses among them."""

    def __init__(self, parser: MarkdownIt) -> None:
        ruler = parser.block.ruler
        self._active = ruler.get_active_rules()
        named = dict(zip(ruler.getRules(""), self._active, strict=True))
        self._chains: dict[str, list[_Rule]] = {}
        terminators = _chosen(
            [(named[rule], rule) for rule in ruler.getRules("paragraph")], after=[]
        )
        for chain in _CHAINS:
            rules = [(named[rule], rule) for rule in ruler.getRules(chain)]
            is_whole = chain == ""
            after = [_paragraph_or_underlined(terminators)] if is_whole else []
            self._chains[chain] = [_chosen(rules, after=after)]

    def getRules(self, chain: str = "") -> list[_Rule]:  # noqa: N802 - the library's name
        return self._chains[chain]

    def get_active_rules(self) -> list[str]:
        return self._active


def _chosen(rules: Sequence[tuple[str, _Rule]], *, after: Sequence[_Rule]) -> _Rule:
    """One rule that tries those of `rules` that the first characters of the line allow, in order,
    and `after` when none of them matched."""
    named = dict(rules)
    table, code = named.get("table"), named.get("code")
    characters = {character for first in _FIRST.values() for character in first}
    by_character = {
        character: (
            *(rule for name, rule in rules if character in _FIRST.get(name, "")),
            *after,
        )
        for character in characters
    }
    others = tuple(after)

    def rule(state: StateBlock, line: int, end: int, silent: bool) -> bool:
        if state.sCount[line] - state.blkIndent >= _CODE_INDENT:
            # Nothing but code can begin this far to the right.
            return code is not None and code(state, line, end, silent)
        src = state.src
        if table is not None and line + 2 <= end:
            below = state.bMarks[line + 1] + state.tShift[line + 1]
            if src[below : below + 1] in _BELOW_A_HEADER and table(state, line, end, silent):
                return True
        start = state.bMarks[line] + state.tShift[line]
        for each in by_character.get(src[start : start + 1], others):
            if each(state, line, end, silent):
                return True
        return False

    return rule


_BELOW_A_HEADER = frozenset("|-:")


def _paragraph_or_underlined(ends: _Rule) -> _Rule:
    """The rules `lheading` and `paragraph`; `ends` says whether a line ends a paragraph."""

    def rule(state: StateBlock, line: int, end: int, silent: bool) -> bool:  # noqa: ARG001
        b_marks, e_marks, t_shift = state.bMarks, state.eMarks, state.tShift
        s_count, indent, src = state.sCount, state.blkIndent, state.src
        outer, state.parentType = state.parentType, "paragraph"
        following = line + 1
        while following < end:
            start = b_marks[following] + t_shift[following]
            if start >= e_marks[following]:
                break
            to_the_right = s_count[following] - indent
            if to_the_right < _CODE_INDENT:
                if to_the_right >= 0 and src[start] in _UNDERLINES:
                    level = _underline(src[start : e_marks[following]])
                    if level:
                        state.parentType = outer
                        _push_heading(state, line, following, level)
                        return True
                # A line of a quote that goes on without its mark is below zero.
                if s_count[following] >= 0 and ends(state, following, end, True):
                    break
            following += 1
        # The library leaves `parentType` at "paragraph" here, and its lists look at that.
        state.line = following
        state.push("paragraph_open", "p", 0).map = [line, following]
        return True

    return rule


_UNDERLINES = frozenset("-=")


def _underline(text: str) -> int:
    """The level of the heading above this line when it is an underline, else 0."""
    marker = text[0]
    if text.rstrip(" \t").strip(marker):
        return 0
    return 1 if marker == "=" else 2


def _push_heading(state: StateBlock, line: int, underline: int, level: int) -> None:
    state.line = underline + 1
    state.push("heading_open", f"h{level}", 1).map = [line, state.line]
    content = StateBlock.getLines(state, line, underline, state.blkIndent, keepLastLF=False)
    state.push("inline", "", 0).content = mdTrim(content)
    state.push("heading_close", f"h{level}", -1)


# --- state -----------------------------------------------------------------------------------


class _Token:
    """As much of a token as the rules set and we read."""

    __slots__ = (
        *("attrs", "block", "children", "content", "hidden", "info", "level", "map", "markup"),
        *("meta", "nesting", "tag", "type"),
    )

    def __init__(self, type_: str, tag: str, nesting: int, level: int) -> None:
        self.type = type_
        self.tag = tag
        self.nesting = nesting
        self.level = level
        self.map: list[int] | None = None
        self.content = ""


class _State(StateBlock):
    def __init__(self, src: str, md: MarkdownIt, env: dict[str, Any], tokens: list[Token]) -> None:
        has_tabs = "\t" in src
        super().__init__(src if has_tabs else "", md, env, tokens)
        if not has_tabs:
            self._mark_lines(src)

    def _mark_lines(self, src: str) -> None:
        """What the library's own loop finds out of each line, of a text without tabs."""
        self.src = src
        lines = src.split("\n")
        if not lines[-1].strip(" "):
            lines.pop()
        indents = [len(line) - len(line.lstrip(" ")) for line in lines]
        ends = [*accumulate((len(line) + 1 for line in lines), initial=-1)]
        end = len(src)
        self.bMarks = [*(before + 1 for before in ends[:-1]), end]
        self.eMarks = [*ends[1:], end]
        self.tShift = [*indents, 0]
        self.sCount = [*indents, 0]
        self.bsCount = [0] * (len(lines) + 1)
        self.lineMax = len(lines)

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        if nesting < 0:
            self.level -= 1
        token = cast("Token", _Token(ttype, tag, nesting, self.level))
        if nesting > 0:
            self.level += 1
        self.tokens.append(token)
        return token

    def getLines(self, begin: int, end: int, indent: int, keepLastLF: bool) -> str:  # noqa: ARG002, N802, N803
        """What is inside a fence or HTML; nobody reads it from here."""
        return ""
