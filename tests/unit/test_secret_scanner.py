"""Credentials are found in every spelling, named by place, and never repeated.

No value stands in this file: all are made of parts or of a seeded random generator.
"""

from __future__ import annotations

import base64
import json
import os
import random
import string
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.adapters.secrets import LayeredSecretScanner
from knowledge.core.errors import SecretFound
from knowledge.core.types import SecretFinding
from knowledge.evaluation.scans import measure_secrets

ALPHANUMERIC = string.ascii_letters + string.digits
RANDOM = random.Random(20)


def made(length: int, alphabet: str = ALPHANUMERIC) -> str:
    return "".join(RANDOM.choices(alphabet, k=length))


HUB = "gh" + "p_" + "E7" + made(34)
CLOUD = "AK" + "IA" + made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
PASSWORD = "qT7#" + made(8) + "!x9Z"
DASHES = "-" * 5
BODY = [made(64, ALPHANUMERIC + "+/") for _ in range(6)]
HEAD, FOOT = f"{DASHES}BEGIN RSA PRIVATE KEY{DASHES}", f"{DASHES}END RSA PRIVATE KEY{DASHES}"


@cache
def scanner() -> LayeredSecretScanner:
    return LayeredSecretScanner(fingerprint_key=b"a key of the tests")


def scan(text: str) -> list[SecretFinding]:
    return scanner().scan(text)


def shared() -> Path:
    folder = Path(os.environ.get("VERBATIM_SHARED", Path(__file__).resolve().parents[3] / "shared"))
    if not (folder / "secrets" / "positives_open.jsonl.b64").exists():
        pytest.skip("the open sets are not here; set VERBATIM_SHARED to their folder")
    return folder


SPLITS = {
    "whole": "{a}{b}",
    "line feed": "{a}\n{b}",
    "carriage return": "{a}\r\n{b}",
    "space": "{a} {b}",
    "continuation": 'export T="{a}\\\n{b}"',
    "concatenation": 'T = "{a}" + "{b}"',
    "adjacent literals": 'T = "{a}"\n    "{b}"',
    "block quote": "> key {a}\n> {b}",
    "list item": "- key {a}\n  {b}",
    "soft hyphen": "key {a}\u00ad{b}",
    "zero width": "key {a}\u200b{b}",
    "table cell": "| a | b |\n| - | - |\n| {a} | {b} |",
    "quoted-printable": "T={a}=\n{b}",
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("value", [HUB, CLOUD], ids=["hub", "cloud"])
def test_a_key_is_found_however_it_is_split(value: str, split: str) -> None:
    assert scan("# Notes\n\n" + split.format(a=value[:9], b=value[9:]) + "\n")


@pytest.mark.parametrize(
    "encode",
    [
        lambda v: base64.b64encode(f"token={v}".encode()).decode(),
        lambda v: base64.b64encode(base64.b64encode(f"token={v}".encode())).decode(),
        lambda v: f"token={v}".encode().hex(),
        lambda v: "https://a.test/?state=token%3D" + v.replace("_", "%5F"),
        lambda v: v.replace("_", "&#95;"),
        lambda v: v.replace("_", "\\_"),
        lambda v: "".join(chr(ord(c) + 0xFEE0) for c in v),
    ],
    ids=["base64", "base64 twice", "hex", "percent", "html", "markdown", "full width"],
)
def test_an_encoded_key_is_found(encode: Callable[[str], str]) -> None:
    assert scan(f"payload: {encode(HUB)}\n")


PEM_FORMS = {
    "plain": "\n".join([HEAD, *BODY, FOOT]),
    "literal line feeds": 'key = "' + "\\n".join([HEAD, *BODY, FOOT]) + '"',
    "literal carriage returns": "key='" + "\\r\\n".join([HEAD, *BODY, FOOT]) + "'",
    "yaml": "key: |\n" + "\n".join(f"    {line}" for line in [HEAD, *BODY, FOOT]),
    "json": json.dumps({"private_key": "\n".join([HEAD, *BODY, FOOT])}),
    "array": "[\n" + ",\n".join(f" '{line}'" for line in [HEAD, *BODY, FOOT]) + "\n]",
    "block quote": "\n".join(f"> {line}" for line in [HEAD, *BODY, FOOT]),
    "no footer": "\n".join([HEAD, *BODY]),
}


@pytest.mark.parametrize("form", PEM_FORMS.values(), ids=PEM_FORMS)
def test_a_private_key_is_found_once_in_every_form(form: str) -> None:
    (finding,) = scan(f"# K\n\n{form}\n")
    assert "key" in finding.rule


@pytest.mark.parametrize(
    "text",
    [
        f"postgres://app:{PASSWORD.replace('#', '%23')}@db.acme.test:5432/app",
        f"postgres://user:password@{made(6)}7x{made(6)}@db.acme.test/app",
        f"git clone https://deploy:{PASSWORD.replace('#', '*')}@git.acme.test/ops.git",
        f"DB_PASSWORD={PASSWORD}",
        f'password: "{PASSWORD}"  # gitleaks:allow kingfisher:ignore pragma: allowlist secret',
        f"The root password is `{PASSWORD}`.",
        f"| Name | Password |\n|---|---|\n| ops | {PASSWORD} |",
        f"sshpass -p '{PASSWORD}' ssh host",
        "Authorization: Basic " + base64.b64encode(f"deploy:{PASSWORD}".encode()).decode(),
        f"<password>{PASSWORD}</password>",
        "admin:$2" + "y$10$" + made(53),
    ],
)
def test_a_value_that_its_surroundings_name_is_found(text: str) -> None:
    assert scan(f"# Page\n\n{text}\n")


@pytest.mark.parametrize(
    "text",
    [
        "The documented example is AKIAIOSFODNN7" + "EXAMPLE, use your own key.",
        "secret wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY",
        "export API_KEY=YOUR_API_KEY\nexport PASSWORD=changeme",
        'password = "********"\ntoken: ${VAULT_TOKEN}\nkey: ' + "x" * 32,
        "db: postgres://user:password@localhost:5432/app",
        "open http://host:3001/@name or postgres://localhost/db",
        "hdr: Authorization: Bearer <token>",
        f"A key file starts with `{HEAD}` and ends with `{FOOT}`.",
        "Commit 4283fefc63f0cd0e873a0000c6d07ef7b77e90d3 fixed 3f2b8c1e-6d4a-4f7b-9c2d-8b0e7153bf7c",
        'integrity="sha384-' + made(64, ALPHANUMERIC + "+/") + '"',
        "![chart](data:image/png;base64," + made(4_000, ALPHANUMERIC + "+/") + ")",
        "\n".join(
            [HEAD.replace("RSA PRIVATE", "PUBLIC"), *BODY, FOOT.replace("RSA PRIVATE", "PUBLIC")]
        ),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5" + made(48) + " relay@example.test",
        "Rotate your password every season; the token is read from os.environ['TOKEN'].",
        "",
    ],
)
def test_documentation_is_admitted(text: str) -> None:
    assert scan(f"# Page\n\n{text}\n") == []


def test_an_example_does_not_excuse_the_key_beside_it() -> None:
    example = "AKIAIOSFODNN7" + "EXAMPLE"
    (finding,) = scan(f"Not {example} but {CLOUD}.\n")
    assert (finding.line, finding.column) == (1, len(f"Not {example} but ") + 1)


def test_each_value_is_reported_once_at_its_first_place() -> None:
    findings = scan(f"one {HUB}\ntwo {HUB}\n")
    assert [(f.line, f.column, f.length) for f in findings] == [(1, 5, len(HUB))]


def test_fingerprints_depend_on_the_key() -> None:
    other = LayeredSecretScanner(fingerprint_key=b"another")
    assert other.scan(HUB)[0].fingerprint != scan(HUB)[0].fingerprint
    with pytest.raises(ValueError, match="empty"):
        LayeredSecretScanner(fingerprint_key=b"")


@settings(max_examples=150, deadline=None)
@given(
    before=st.text(alphabet="abc é\n&\u200b", max_size=60),
    seed=st.integers(0, 10**9),
)
def test_a_raw_finding_points_at_its_value(before: str, seed: int) -> None:
    value = "gh" + "p_" + "".join(random.Random(seed).choices(ALPHANUMERIC, k=36))
    text = f"{before} {value}\nend"
    for finding in scan(text):
        line = text.split("\n")[finding.line - 1]
        assert line[finding.column - 1 :].startswith(value)
        assert finding.view == "raw"


TEMPLATES = (
    "password = '{}'",
    "token: {}",
    "The API key is {} for now",
    "https://u:{}@h.test/",
    "curl -u 'a:{}' x",
    "| password | {} |\n",
    "key {}",
)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(10, 60), template=st.sampled_from(TEMPLATES))
def test_no_part_of_a_value_leaks(seed: int, length: int, template: str) -> None:
    chooser = random.Random(seed)
    value = "".join(chooser.choices(ALPHANUMERIC + "!#%+=-_", k=length))
    findings = scan(template.format(value))
    shown = repr(findings) + repr(scanner())
    if findings:
        error = SecretFound(
            [{"rule": f.rule, "line": f.line, "column": f.column} for f in findings]
        )
        shown += str(error) + repr(error)
    parts = {value[i : i + 6] for i in range(len(value) - 5)}
    assert not [part for part in parts if part in shown]


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None)
def test_any_text_is_scanned(text: str) -> None:
    scan(text)


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "^",
        "\n",
        "-",
        "|-",
        "password=",
        "key:",
        "eyJ",
        "eyJ ",
        "://a:b@",
        "ghp_ ",
        "%41",
        "&#65;",
        "QUJD",
        "AC",
        '"+"',
        "mysql ",
        "curl -u ",
        "<br>",
        HEAD,
    ],
)
def test_time_is_linear_in_the_length(unit: str) -> None:
    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        started = time.process_time()
        scan(text)
        return time.process_time() - started

    seconds(10)
    small, large = seconds(100_000), seconds(400_000)
    assert large < 10 * small + 0.5


@pytest.mark.long
def test_ten_megabytes_on_one_line_are_scanned() -> None:
    started = time.process_time()
    assert scan("a" * 10_000_000) == []
    assert time.process_time() - started < 60


def test_recall_on_the_open_set_holds() -> None:
    folder = shared()
    encoded = (folder / "secrets" / "positives_open.jsonl.b64").read_bytes()
    rows = [json.loads(line) for line in base64.b64decode(encoded).splitlines()]
    measures = measure_secrets(rows, [], scanner())
    assert measures.plain.rate >= 0.98
    assert measures.disguised.rate >= 0.96


@pytest.mark.long
def test_ordinary_documents_pass() -> None:
    texts = []
    for corpus in sorted((shared() / "collections").glob("*/corpus.jsonl")):
        for line in corpus.read_text().splitlines():
            document = json.loads(line)
            texts.append(f"{document.get('title', '')}\n\n{document['text']}")
    measures = measure_secrets([], texts, scanner())
    assert measures.ordinary.flagged_per_thousand <= 1
