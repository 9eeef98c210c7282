"""Readings of a text in which a disguised credential is whole again: joined and decoded."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from knowledge.adapters.textviews import View, ViewBuilder, longest_word, lowered

# How a value that may have been broken begins. Nothing is joined elsewhere, because gluing
# ordinary words makes random-looking strings. Literals, because a plain search for each is
# several times faster than one pattern for all.
_PREFIXES = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    *("glpat-", "gldt-", "glrt-", "glft-", "glcbt-", "glptt-", "glsoat-"),
    *("xoxb-", "xoxp-", "xoxa-", "xoxe-", "xoxe.", "xoxr-", "xoxs-", "xapp-"),
    *("k_live_", "k_test_", "whsec_", "sk-", "AKIA", "ASIA", "AIza", "GOCSPX-", "SG.", "EAAA"),
    *("npm_", "hf_", "pypi-Ag", "hvs.", "hvb.", "dop_v1_", "doo_v1_", "dapi", "glsa_", "glc_"),
    *("NRAK-", "shpat_", "shpca_", "shppa_", "shpss_", "eyJ", "lin_api_", "PMAK-", "dckr_pat_"),
    *("gsk_", "tskey-", "ntn_", "sntrys_", "sntryu_", "dp.pt.", "dp.st.", "pul-", "pplx-", "r8_"),
    *("nvapi-", "lsv2_", "figd_", "AKCp", "ATATT", "ATCTT", "HRKU-", "AGE-SECRET-KEY-"),
    *("rubygems_", "sbp_", "xai-", "LTAI", "/services/T", "/webhooks/", "://"),
)
_USERINFO = re.compile(r"://[^\s/@:\"'`<>]{0,40}:")
# An assignment names its value without telling its shape, so more is asked of what breaks it.
_NAMES = ("password", "passwd", "pwd", "secret", "token", "_key", " key", "apikey", "api-key")
_ASSIGNMENT = re.compile(r"[a-z _-]{3,8}[\"'`]?[ \t]{0,3}[:=][ \t]{0,3}[\"'`]?")
_CHARACTER = r"[A-Za-z0-9_+/=.~%!?@#$^&:;,*(){}\[\]-]"
_RUN = re.compile(_CHARACTER + "{1,400}+")

# What can stand between two halves of one value. The first two say themselves that the value
# goes on; a bare line end or space does not, so those are joined after known prefixes only.
_MARK = r"(?:[\"'`][ \t]{0,4}(?:\+|\.\.?|&|\|\||~|<<)?[ \t]{0,4}\\?(?:\r?\n[ \t>|*]{0,40})?(?:(?:\+|\.\.?|&|\|\||~|<<)[ \t]{0,4})?(?:[rubf]{0,2})[\"'`])"
_CONTINUED = re.compile(
    rf"{_MARK}|\\[ \t]{{0,4}}\r?\n[ \t>|*\"'`]{{0,40}}|(?:<(?:wbr|br)[ /]{{0,2}}>)"
)
_LINE_END = re.compile(
    r"[ \t]{0,4}\r?\n(?:[ \t]{0,40}\r?\n)?[ \t>|*+]{0,40}(?:(?:[-\d]{1,2}\.?|//|\#)[ \t]{1,4})?"
    r"|(?:</?[a-z]{1,6}[ /]{0,2}>\s{0,4}){1,3}"
)
_SPACE = re.compile(r"[ \t]{1,4}(?:\|[ \t]{0,4})?")
_MOST_PIECES = 9
_MOST_SPACES = 3
_LONGEST = 1_200


def joined(view: View) -> View:
    """Every value that seems to be broken, put together again, one a line.

    A broken value is written once for each number of pieces it may have, because what follows
    the last piece is prose, and shapes with a fixed length must end where the value ends. The
    view is at most a small multiple of its parent: a window ends where the next value begins.
    """
    text = view.text
    builder = ViewBuilder(view)
    starts = _broken_starts(text)
    known_starts = {start for start, _, known in starts if known}
    position = 0
    for start, after, known in starts:
        if start < position:
            continue
        pieces = list(_pieces(text, start, after, known=known, known_starts=known_starts))
        for count in range(2, len(pieces) + 1):
            for drop_mark in (False, True):
                _write(builder, text, pieces[:count], drop_mark=drop_mark)
        # What follows a name may begin with a prefix, which joins more readily.
        position = pieces[0][1] if known else after
    return builder.build("joined")


def _broken_starts(text: str) -> list[tuple[int, int, bool]]:
    """Where values begin, in order: start, end of the beginning, whether the shape is known."""
    starts = []
    for prefix in _PREFIXES:
        hit = text.find(prefix)
        while hit >= 0:
            if prefix != "://":
                starts.append((hit, hit + len(prefix), True))
            elif userinfo := _USERINFO.match(text, hit):
                starts.append((hit, userinfo.end(), True))
            hit = text.find(prefix, hit + len(prefix))
    lower = lowered(text)
    for name in _NAMES:
        hit = lower.find(name)
        while hit >= 0:
            if assignment := _ASSIGNMENT.match(lower, hit):
                starts.append((hit, assignment.end(), False))
            hit = lower.find(name, hit + len(name))
    starts.sort()
    return starts


def _pieces(
    text: str, begin: int, after: int, *, known: bool, known_starts: set[int]
) -> Iterator[tuple[int, int]]:
    """The spans that may make up one value, the first from its beginning on."""
    run = _RUN.match(text, after)
    end = run.end() if run else after
    yield begin, end
    # An unnamed shape goes on only where its quote is open or its line ends in a mark.
    may_wrap = known or text[after - 1] in "\"'`" or text[end - 1] in "=-"
    spaces = 0
    for _ in range(_MOST_PIECES - 1):
        gap = _CONTINUED.match(text, end)
        if not gap:
            gap = _LINE_END.match(text, end) if may_wrap else None
        if not gap and known and spaces < _MOST_SPACES:
            gap = _SPACE.match(text, end)
            spaces += 1
        run = _RUN.match(text, gap.end()) if gap else None
        if not gap or not run or run.end() - begin > _LONGEST:
            return
        # The next value begins here, unless it is the next part of the same JWT.
        if gap.end() in known_starts and text[end - 1] != ".":
            return
        end = run.end()
        yield run.span()


def _write(
    builder: ViewBuilder, text: str, pieces: list[tuple[int, int]], *, drop_mark: bool
) -> None:
    marked = [end for _, end in pieces[:-1] if text[end - 1] in "-="]
    if drop_mark and not marked:
        return
    for begin, end in pieces[:-1]:
        builder.keep(begin, end - 1 if drop_mark and end in marked else end)
    builder.keep(*pieces[-1])
    # The quote that opened the value is closed, so that it reads as one quoted value.
    after = pieces[-1][1]
    builder.keep(after, after + 1) if text[after : after + 1] in ("'", '"', "`") else None
    builder.put("\n", at=max(after - 1, 0))


_BASE64_RUN = re.compile(
    r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{20,}+(?:\r?\n[ \t>|]{0,8}[A-Za-z0-9+/_-]{8,}+)*+={0,2}"
)
_HEX_RUN = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}){16,}+(?![0-9A-Za-z])")
_NOISE = re.compile(r"[\s>|]+")
_ESCAPE = re.compile(
    r"%[0-9a-fA-F]{2}|\\x[0-9a-fA-F]{2}|\\u00[0-9a-fA-F]{2}|=(?:3D|2D|5F|2B|2F|40|2E|3A)"
)
_DEPTH = 3
_SHORTEST_RUN = 20


def decoded(view: View) -> View:
    """Readable text out of base64, hexadecimal and percent, `\\x` or `\\u` escapes, one a line."""
    builder = ViewBuilder(view)
    if longest_word(view.text) >= _SHORTEST_RUN:
        for start, plain in decoded_runs(view.text):
            builder.put(plain + "\n", at=start)
    _write_unescaped(builder, view.text)
    return builder.build("decoded")


def decoded_runs(text: str, depth: int = _DEPTH) -> Iterator[tuple[int, str]]:
    """Offsets of encoded runs and the printable text they spell, itself decoded up to `depth`."""
    for match in _BASE64_RUN.finditer(text):
        run = match.group()
        plain = _from_base64(_NOISE.sub("", run) if "\n" in run else run)
        if plain is None and "\n" in run:
            plain = _from_base64(run.partition("\n")[0].rstrip())
        if plain is not None:
            yield match.start(), plain
            if depth > 1:
                yield from ((match.start(), inner) for _, inner in decoded_runs(plain, depth - 1))
    for match in _HEX_RUN.finditer(text):
        plain = _printable(bytes.fromhex(match.group()))
        if plain is not None:
            yield match.start(), plain


def _from_base64(run: str) -> str | None:
    body = run.rstrip("=")
    if len(body) % 4 == 1:
        body = body[:-1]
    # Most runs are hashes, images and identifiers: the first bytes tell.
    if _decode(body[:24]) is None:
        return None
    return _decode(body)


def _decode(body: str) -> str | None:
    try:
        data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_")
    except binascii.Error:
        return None
    return _printable(data)


def _printable(data: bytes) -> str | None:
    if len(data) > 1 and not any(data[1:16:2]):
        data = data[::2]  # UTF-16, as PowerShell encodes its commands
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        return None
    visible = text.replace("\n", "").replace("\r", "").replace("\t", "")
    return text if visible.isprintable() else None


def _write_unescaped(builder: ViewBuilder, text: str) -> None:
    """The lines that hold an escape, with every escape undone."""
    line_end = -1
    last = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        if start >= line_end:
            if line_end >= 0:
                builder.keep(last, line_end)
                builder.put("\n", at=line_end - 1)
            last = text.rfind("\n", last, start) + 1 or last
            last = max(last, start - 2_000)
            line_end = text.find("\n", end)
            line_end = len(text) if line_end < 0 else line_end
        builder.keep(last, start)
        builder.put(chr(int(match.group()[-2:], 16)), at=start)
        last = end
    if line_end >= 0:
        builder.keep(last, line_end)
        builder.put("\n", at=max(line_end - 1, 0))
