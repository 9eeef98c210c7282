"""Values that only their surroundings make a credential.

Every rule starts at a literal found by a plain search (`password`, `://`, `basic `) and matches
anchored there with bounded repetition, so the cost is linear in the text and next to nothing in
prose without those words. Patterns run on a lower-cased copy; values are cut from the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from knowledge.adapters.secrets import strength
from knowledge.adapters.secrets.candidates import Candidate
from knowledge.adapters.textviews import lowered

Span = tuple[int, int]

_LONGEST_VALUE = 300
_SHORTEST_BARE_KEY = 24
_SHORTEST_BEARER = 16
# `AKIA` and sixteen times the same letter is no key.
_LEAST_SHAPE_ENTROPY = 2.5

# --- names: `DB_PASSWORD=...`, `"client_secret": "..."`, "the token is ..." ---------------------

_NAMES = ("pass", "pwd", "psk", "secret", "token", "key", "credential", "ssws", "seed", "pin=")
_NAME = re.compile(
    r"(?:pass(?:word|wd|phrase|code)?s?|pwd|psk|secrets?|tokens?|credentials?|ssws|keys?|seed|pin)"
    r"(?P<suffix>[\w.\-]{0,32}?)(?P<close>[\"'`*\]\)}]{0,3})(?=[\s=:|>,\"'`“(]|$)"
)
# "key" alone names too much; these words before it do not.
_KEY_BEFORE = re.compile(
    r"(?:api|access|auth|client|sign(?:ing)?|encryption|private|shared|account|storage|license|"
    r"service|secret|hmac|master|app(?:lication)?|deploy|session|cipher|aes|jwt|root|admin|webhook|"
    r"security|integration|write|server)[_\- .]?$"
)
_PUBLIC_BEFORE = re.compile(r"(?:public|gpg|pgp|primary|foreign|partition|sort|cache|host)[_\- ]?$")
_FLAG_BEFORE = re.compile(r"(?:^|[\s\"'`\[,])--?[a-z0-9-]{0,24}$")
_WORD_BEFORE = re.compile(r"[a-z]$")
# Names that end like this hold something about a secret, not the secret.
_ABOUT = re.compile(
    r"(?:file|path|dir|name|_id|-id|\.id|url|uri|hint|policy|length|len|count|type|ttl|expir\w*|age|"
    r"field|arn|ref|version|alias|label|fingerprint|rotation|limit|limits|size|reset|usage|budget|"
    r"prefix|format|pattern|regex|header|endpoint|issuer|audience|scope|store|manager|provider|sha\d*|md5|hash|digest|checksum)s?$"
)

_QUOTE = r"[\"'`“‘]"
_ASSIGNED = re.compile(
    r"[ \t]{0,8}(?:=>|:=|===?|=|:|\|)[ \t]{0,8}(?:\[|\(|[a-z]{1,12}\()?[*]{0,2}(?P<quote>[\"'`“‘]?)[*]{0,2}[ \t]?"
)
_ELEMENT = re.compile(r"\s{0,2}>(?P<quote>)\s{0,8}(?:<(?:code|b|strong|value|string)>)?")
_VALUE_ATTRIBUTE = re.compile(
    r"[\"'`]?[,;]?\s{0,40}(?:- )?[\"'`]?\bvalue[\"'`]?\s{0,4}[=:]\s{0,4}(?P<quote>[\"'`]?)"
)
_SAID = re.compile(
    r"(?:[ \t][^\n;]{0,40}?)?(?:[ \t](?:is|was|are)(?:[ \t](?:now|set to))?[ \t:]|:|=)[ \t]{0,4}"
    rf"\*{{0,2}}(?P<quote>{_QUOTE}?)\*{{0,2}}"
)
_QUOTED_NEXT = re.compile(rf"[ \t]{{1,4}}(?:\(|\*\*)?(?P<quote>{_QUOTE})")
_NEXT = re.compile(r"[ \t]{1,4}(?:\(|\*\*)?(?P<quote>)")
_FLAG_VALUE = re.compile(r"(?:=|[ \t]{1,4})(?P<quote>[\"'`]?)")
_NETWORK_DEVICE = re.compile(r" (?:[5789]|encrypted) (?P<quote>)")

_NAMED_INSIDE = re.compile(r"(?:pass|pwd|key|token|secret|cred)[\w-]{0,12}[=:]\S{8}")

_GIVERS = (
    ("assignment", _ASSIGNED),
    ("assignment", _VALUE_ATTRIBUTE),
    ("assignment", _ELEMENT),
    ("prose", _QUOTED_NEXT),
    ("prose", _SAID),
)

_CLOSING = {"“": "”", "‘": "’"}
_VALUE = re.compile(r"[^\s\"'`”’<>]{6,300}")


def _value(text: str, opening: re.Match[str]) -> tuple[Span, bool] | None:
    """The value after `opening` and whether it was quoted."""
    start = opening.end()
    quote = opening.group("quote")
    if quote:
        end = text.find(_CLOSING.get(quote, quote), start, start + _LONGEST_VALUE)
        if end > start:
            return ((start, end), True) if not re.search(r"\s", text[start:end]) else None
    match = _VALUE.match(text, start)
    if not match:
        return None
    value = match.group()
    return (start, start + len(strength.trimmed(value))), False


def _named(text: str, lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    name = _NAME.match(lower, hit)
    if not name or _ABOUT.search(name.group("suffix")):
        return
    before = lower[max(0, hit - 28) : hit]
    outright = True
    if name.group().startswith("key"):
        outright = bool(_KEY_BEFORE.search(before))
        if not outright and (_PUBLIC_BEFORE.search(before) or _WORD_BEFORE.search(before)):
            return
    found = _assigned(text, lower, name, outright=outright)
    if not found and outright:
        found = _beside(text, lower, name, flag=bool(_FLAG_BEFORE.search(before)))
    if found:
        yield found


def _assigned(
    text: str, lower: str, name: re.Match[str], *, outright: bool
) -> tuple[str, Span] | None:
    """The value that a sign, an element or a sentence gives to `name`."""
    for rule, pattern in _GIVERS:
        opening = pattern.match(lower, name.end())
        found = _value(text, opening) if opening else None
        if not found:
            continue
        (start, stop), quoted = found
        # `key=token=value`: the name next to the value judges it, and only that one.
        if _NAMED_INSIDE.search(lower, start, stop):
            return None
        value = text[start:stop]
        if not outright and len(value) < _SHORTEST_BARE_KEY:
            continue
        if rule == "prose" and name.group("suffix").strip("-_.s"):
            continue
        if strength.is_strong(value, named=outright, quoted=quoted) or (
            "phrase" in name.group() and strength.is_passphrase(value)
        ):
            return rule, (start, stop)
    return None


def _beside(text: str, lower: str, name: re.Match[str], *, flag: bool) -> tuple[str, Span] | None:
    """The value that simply follows: of a command-line flag, in a sentence, on a device."""
    opening = (_FLAG_VALUE if flag else _NEXT).match(lower, name.end())
    found = _value(text, opening) if opening else None
    if found:
        value = text[slice(*found[0])]
        if strength.is_strong(value, named=False) and (flag or strength.is_mixed(value)):
            return ("command-line" if flag else "prose"), found[0]
    opening = _NETWORK_DEVICE.match(lower, name.end())
    found = _value(text, opening) if opening else None
    if found:
        value = text[slice(*found[0])]
        if any(c.isdigit() for c in value) and not strength.is_placeholder(value):
            return "network-device", found[0]
    return None


# --- URLs, headers, commands, shapes ------------------------------------------------------------

_URL_TOKEN = re.compile(r"[^\s\"'`<>|]{1,400}")
_URL_HOST = re.compile(r"[\w.\-\[\]:%{}$]{1,255}(?=[/?#,;:)\]\\]|$)")


def _userinfo(text: str, _lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    """`scheme://user:password@host`, the userinfo read to the last @ that a host follows."""
    token = _URL_TOKEN.match(text, hit + 3)
    if not token:
        return
    # Each URL of a run of them is read once.
    following = text.find("://", hit + 3, token.end())
    url = text[hit + 3 : following] if following >= 0 else token.group()
    query = url.find("?")
    limit = len(url)
    while (at := url.rfind("@", 0, limit)) > 0:
        limit = at
        if _URL_HOST.match(url, at + 1) and not 0 <= query < at - _LONGEST_VALUE:
            break
    else:
        return
    user, colon, password = url[:at].partition(":")
    if not colon or "/" in user or "?" in user:
        return
    # `host:3001/@name` has a port and a path, not a password.
    if re.match(r"\d{1,5}/", password):
        return
    if strength.is_userinfo_password(password):
        start = hit + 3 + len(user) + 1
        yield "url-userinfo", (start, start + len(password))


_BASIC = re.compile(r"basic[ \t]{1,4}(?P<v>[a-z0-9+/_=-]{12,400})")
_DOCKER_AUTH = re.compile(r"auth[\"']?\s{0,4}:\s{0,4}[\"'](?P<v>[a-z0-9+/_=-]{12,400})")


def _basic(text: str, lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    match = _BASIC.match(lower, hit) or _DOCKER_AUTH.match(lower, hit)
    if not match:
        return
    start, stop = match.span("v")
    user, colon, password = (strength.decoded_ascii(text[start:stop]) or "").partition(":")
    if colon and user and strength.is_userinfo_password(password):
        yield "basic-auth", (start, stop)


_BEARER = re.compile(r"(?:bearer|token|ssws|apikey)[ \t]{1,4}(?:token=)?(?P<quote>[\"']?)")


def _bearer(text: str, lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    opening = _BEARER.match(lower, hit)
    found = _value(text, opening) if opening else None
    if found:
        (start, stop), _ = found
        if strength.is_strong(text[start:stop], named=False) and stop - start >= _SHORTEST_BEARER:
            yield "authorization", (start, stop)


_COMMAND = re.compile(
    r"(?:mysql\w{0,10}\b[^\n]{0,120}?\s-p|sshpass\s+-p\s{0,2}|login\b[^\n]{0,120}?\s-p[ =]"
    r"|redis-cli\b[^\n]{0,120}?\s-a\s{1,2}"
    r"|(?:curl|wget)\b[^\n]{0,200}?\s(?:-u|--user)[ =]{0,2}[\"']?[^\s:\"']{1,40}:)(?P<quote>[\"']?)"
)
_COMMANDS = ("mysql", "sshpass", "login", "redis-cli", "curl", "wget")


def _command(text: str, lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    opening = _COMMAND.match(lower, hit)
    found = _value(text, opening) if opening else None
    if found:
        (start, stop), _ = found
        if strength.is_strong(text[start:stop], named=False):
            yield "command-line", (start, stop)


_PARAMETER = re.compile(r"(?:sig|sid|sessionid|pwd|jsessionid)=(?P<quote>)")

_PARAMETER_VALUE = re.compile(r"[^\s;&\"'`<>]{8,300}")


def _parameter(text: str, lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    if hit and (lower[hit - 1].isalnum() or lower[hit - 1] == "_"):
        return
    opening = _PARAMETER.match(lower, hit)
    match = _PARAMETER_VALUE.match(text, opening.end()) if opening else None
    if match and strength.is_strong(match.group(), named=False):
        yield "connection-string", match.span()


_COMMUNITY = re.compile(r"community (?P<v>[^\s\"']{8,64})")


def _community(text: str, lower: str, hit: int) -> Iterator[tuple[str, Span]]:
    match = _COMMUNITY.match(lower, hit)
    if match and "snmp" in lower[max(0, hit - 16) : hit]:
        value = text[slice(*match.span("v"))]
        if any(c.isdigit() for c in value) and not strength.is_placeholder(value):
            yield "network-device", match.span("v")


def _shape(rule: str, pattern: str) -> Callable[[str, str, int], Iterator[tuple[str, Span]]]:
    compiled = re.compile(pattern)

    def matcher(text: str, _lower: str, hit: int) -> Iterator[tuple[str, Span]]:
        if hit and (text[hit - 1].isalnum() or text[hit - 1] == "_"):
            return
        match = compiled.match(text, hit)
        if match and strength.entropy(match.group("v")) >= _LEAST_SHAPE_ENTROPY:
            yield rule, match.span("v")

    return matcher


_PASSWORD_HASH = _shape(
    "password-hash",
    r"(?P<v>\$(?:2[abxy]\$\d\d\$[./A-Za-z0-9]{53}|6\$(?:rounds=\d+\$)?[^$\s]{1,16}\$[./A-Za-z0-9]{86}"
    r"|5\$(?:rounds=\d+\$)?[^$\s]{1,16}\$[./A-Za-z0-9]{43}|apr1\$[^$\s]{1,8}\$[./A-Za-z0-9]{22}"
    r"|1\$[^$\s]{1,8}\$[./A-Za-z0-9]{22}(?![./A-Za-z0-9])"
    r"|y\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}"
    r"|argon2i?d?\$v=\d+\$[^$\s]{1,40}\$[A-Za-z0-9+/]{11,64}\$[A-Za-z0-9+/]{22,128}))",
)
_AWS_ID = _shape("aws-access-key-id", r"(?P<v>A[KS]IA[A-Z2-7]{16})(?![A-Za-z0-9])")
_TAILSCALE = _shape(
    "tailscale-key", r"(?P<v>tskey-[a-z]{3,10}-[A-Za-z0-9]{6,32}-[A-Za-z0-9]{16,64})(?![A-Za-z0-9])"
)
_TWILIO = _shape(
    "twilio-auth-token", r"AC[0-9a-f]{32}[\s\"',:;=A-Za-z_]{1,60}?(?P<v>[0-9a-f]{32})\b"
)
_WEBHOOK = _shape(
    "webhook",
    r"(?P<v>(?:discord(?:app)?\.com/api/webhooks/\d{17,20}/[\w-]{60,100}"
    r"|hooks\.slack\.com/(?:services|workflows)/T\w{6,14}/[AB]\w{6,14}/\w{20,40}))",
)

Matcher = Callable[[str, str, int], Iterator[tuple[str, Span]]]
# The literals are in lower case; the matcher starts at the place of the literal.
_TRIGGERS: tuple[tuple[str, Matcher], ...] = (
    *((name, _named) for name in _NAMES),
    ("://", _userinfo),
    ("basic ", _basic),
    ("auth", _basic),
    ("bearer ", _bearer),
    ("token ", _bearer),
    *((command, _command) for command in _COMMANDS),
    ("sig=", _parameter),
    ("sid=", _parameter),
    ("sessionid=", _parameter),
    ("community ", _community),
    ("discord", _WEBHOOK),
    ("hooks.slack", _WEBHOOK),
)
# These are searched as they stand, for their case matters.
_SHAPES: tuple[tuple[str, Matcher], ...] = (
    ("$2", _PASSWORD_HASH),
    ("$6$", _PASSWORD_HASH),
    ("$5$", _PASSWORD_HASH),
    ("$1$", _PASSWORD_HASH),
    ("$y$", _PASSWORD_HASH),
    ("$apr1$", _PASSWORD_HASH),
    ("$argon2", _PASSWORD_HASH),
    ("AKIA", _AWS_ID),
    ("ASIA", _AWS_ID),
    ("AC", _TWILIO),
    ("tskey-", _TAILSCALE),
)


def context_candidates(text: str) -> Iterator[Candidate]:
    """Candidates by context, in no particular order and possibly more than once."""
    lower = lowered(text)
    for searched, triggers in ((lower, _TRIGGERS), (text, _SHAPES)):
        for literal, matcher in triggers:
            hit = searched.find(literal)
            while hit >= 0:
                for rule, (start, end) in matcher(text, lower, hit):
                    yield Candidate(rule, "context", start, end)
                hit = searched.find(literal, hit + len(literal))
    if "|" in text:
        yield from _table_candidates(text, lower)


# --- tables: the column or row heading names the cell -------------------------------------------

_DELIMITER_ROW = re.compile(r"^[ \t>|:-]{3,2000}+$", re.MULTILINE)
_SECRET_HEADING = re.compile(
    r"\b(?:password|passphrase|passwd|secret|token|(?:api|access|secret|account) ?key|pwd|credential)s?\b"
)
_LONGEST_ROW = 4_000


def _table_candidates(text: str, lower: str) -> Iterator[Candidate]:
    for delimiter in _DELIMITER_ROW.finditer(text):
        if "|" not in delimiter.group() or "--" not in delimiter.group():
            continue
        header_start = lower.rfind("\n", 0, max(delimiter.start() - 1, 0)) + 1
        headings = [cell for _, cell in _cells(lower, header_start, delimiter.start() - 1)]
        columns = {i for i, heading in enumerate(headings) if _SECRET_HEADING.search(heading)}
        start = delimiter.end() + 1
        while start < len(text):
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            if "|" not in text[start : min(end, start + _LONGEST_ROW)]:
                break
            if end - start <= _LONGEST_ROW:
                yield from _row_candidates(text, start, end, columns)
            start = end + 1


def _row_candidates(text: str, start: int, end: int, columns: set[int]) -> Iterator[Candidate]:
    cells = _cells(text, start, end)
    named_row = bool(cells) and bool(_SECRET_HEADING.search(cells[0][1].lower()))
    for i, (offset, cell) in enumerate(cells):
        if i not in columns and not (named_row and i):
            continue
        value = cell.strip("`*\"'")
        if " " not in value and strength.is_strong(value, named=True):
            begin = offset + cell.find(value)
            yield Candidate("table", "context", begin, begin + len(value))


def _cells(text: str, start: int, end: int) -> list[tuple[int, str]]:
    cells = []
    position = start
    row = text[start:end].strip(" \t>")
    position += text[start:end].find(row) if row else 0
    if row.startswith("|"):
        row, position = row[1:], position + 1
    for cell in row.removesuffix("|").split("|"):
        bare = cell.strip()
        cells.append((position + len(cell) - len(cell.lstrip()), bare))
        position += len(cell) + 1
    return cells
