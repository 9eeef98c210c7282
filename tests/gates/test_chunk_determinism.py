"""Gate: the same bytes under the same chunker version produce identical chunk ids, in any process,
on any day."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from knowledge.adapters.extractors import Extractors
from knowledge.adapters.tokens import TiktokenCounter
from knowledge.core import fingerprint
from knowledge.core.chunking import StructureChunker
from knowledge.core.normalising import NORMALISER_VERSION, normalise
from knowledge.core.profiles import DEFAULT

ROOT = Path(__file__).parents[2]
DOCUMENT = UUID("00000000-0000-5000-8000-000000000001")

GUIDE = """---
title: Guide
date: 2026-05-02T23:30:00-07:00
---

Pre\u0301amble\twith a tab.

# Guide

"""
GUIDE += "The amber relay is sealed before the ledger is counted. " * 20
GUIDE += "\n\n## Restart\n\n```sh\n# stop the worker\n```\n\n## Parts\n\n| id | text |\n| - | - |\n"
GUIDE += "".join(f"| R{number:03} | valve {number} of the outer depot |\n" for number in range(120))
GUIDE += "\n\n\n\n\nLong\n====\n\n" + "One sentence of many, without a break! " * 200
GUIDE += "\n\n- first item\n  - inner\n- second item\n\n## Nothing below\n"

SOURCES = {
    "text/markdown": GUIDE.encode(),
    "text/plain": ("\ufeff" + GUIDE).replace("\n", "\r\n").encode(),
    "application/json": json.dumps(
        {"text": "漢字かな交じり文。" * 400}, ensure_ascii=False
    ).encode(),
}

# Ids that were handed out once. When one of these changes, every citation ever made of such a
# document dies: give the chunker (or normaliser, or extractor) a new version instead.
GOLDEN = {
    "text/markdown": [
        "kc_c6kraf429ravrs5f",
        "kc_qca9kp9app76wf38",
        "kc_bkr01g72tq9v4aeb",
        "kc_vj8jtjvbma0zmttr",
        "kc_4hpyc8w31sjtqp1d",
        "kc_0t8sqbmzj3t3kryt",
        "kc_39zcnb6qckxb7x8q",
        "kc_q60fgv3jn0zjhq21",
        "kc_bgsxqpxr7qac6k7z",
    ],
    "text/plain": [
        "kc_2sm9xg803d7egrjz",
        "kc_555aaj4azwswk3h8",
        "kc_44mep2q5gwb39vah",
        "kc_y136c9c3fwjzty3h",
        "kc_k6rjrxq78q0d82we",
        "kc_yv5gc6ktcca269x5",
        "kc_z3v4mznfk4pqjftg",
    ],
    "application/json": [
        "kc_tr359t0qbj8m1att",
        "kc_hc2z7h2n18940mas",
        "kc_kn24pk5sjqj94aqk",
        "kc_p6s880nxvqq90nrh",
        "kc_y03mrym1tyehr165",
        "kc_84ysz4bjakhgh5rk",
        "kc_dmhvek4brsqzrr83",
    ],
}


def chunk_ids() -> dict[str, list[str]]:
    chunker = StructureChunker(TiktokenCounter())
    ids = {}
    for media_type, content in SOURCES.items():
        extractor = Extractors().for_type(media_type)
        extracted = extractor.extract(content, media_type=media_type, charset=None)
        drafts = chunker.chunk(
            normalise(extracted.text, media_type=media_type).text,
            title="Guide",
            media_type=media_type,
            structure=extracted.structure,
        )
        version = fingerprint.chunker_version(
            extractor.version, NORMALISER_VERSION, chunker.version, DEFAULT.label
        )
        ids[media_type] = [
            fingerprint.chunk_id(
                DOCUMENT,
                1,
                fingerprint.chunk_key(version, draft.ordinal, draft.heading_path, draft.text),
            )
            for draft in drafts
        ]
    return ids


def test_ids_are_those_of_every_run_before() -> None:
    assert chunk_ids() == GOLDEN


@pytest.mark.parametrize(
    ("seed", "zone", "locale"),
    [
        ("0", "UTC", "C"),
        ("1", "Pacific/Kiritimati", "C.UTF-8"),
        ("42", "America/St_Johns", "tr_TR.UTF-8"),
        ("4294967295", "Asia/Kathmandu", "de_DE.ISO-8859-1"),
        ("random", "Pacific/Pago_Pago", "POSIX"),
    ],
)
def test_ids_are_the_same_in_every_process(seed: str, zone: str, locale: str) -> None:
    program = (
        "import json; from tests.gates.test_chunk_determinism import chunk_ids; "
        "print(json.dumps(chunk_ids()))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert json.loads(ran.stdout) == GOLDEN
