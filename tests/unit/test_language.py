from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from knowledge.adapters.language import Py3LangidDetector

detector = Py3LangidDetector()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "The backups run every night and are checked before the office opens."),
        ("german", "Der Schlüsselbund liegt im Depot und wird jeden Morgen geprüft."),
        ("french", "Le technicien vérifie la vanne chaque matin avant l'ouverture du canal."),
        ("spanish", "La válvula se abre cada mañana después de revisar el cuaderno de cobre."),
        ("norwegian", "Ventilen åpnes hver morgen etter at teknikeren har kontrollert boken."),
        ("russian", "Клапан открывается каждое утро после проверки журнала дежурным инженером."),
        ("greek", "Η βαλβίδα ανοίγει κάθε πρωί αφού ελεγχθεί το βιβλίο από τον τεχνικό."),
        ("hindi", "तांबे की किताब की जाँच के बाद हर सुबह वाल्व खोला जाता है।"),
    ],
)
def test_prose_is_told_by_its_language(language: str, text: str) -> None:
    assert detector.detect(text) == language


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Restart",
        "1 2 3 4 5 6 7 8 9 " * 10,
        "def f(x):\n    return [y for y in x if y > 0]\n\nresult = {f(z): g[z] for z in range(9)}\n",
        "铜账本检查完毕后阀门开启并记录在案，随后由值班人员签字确认。" * 3,
        "バルブは毎朝点検のあとに開きます。担当者が記録します。" * 3,
        "밸브는 매일 아침 점검 후에 열립니다. 담당자가 기록합니다." * 3,
        "Zawór otwiera się każdego ranka po sprawdzeniu księgi przez technika dyżurnego.",
        "AEmS2yRttv9Ikdokbbb/SJHaI2y1/kiR2iNstf5HkNkibLX+R5DZImu0/UaQ2SJr" * 4,
    ],
)
def test_unsure_is_simple(text: str) -> None:
    assert detector.detect(text) == "simple"


def test_fenced_code_does_not_outvote_the_prose_around_it() -> None:
    code = "```sh\nfor f in $(ls *.d); do { x=$f; }; done\n```\n"
    prose = "The valve is opened by the operator after the ledger has been checked twice.\n\n"
    assert detector.detect(prose + code * 8 + prose) == "english"


def test_only_a_sample_of_a_long_text_is_read() -> None:
    english = "The valve is opened by the operator after the ledger has been checked. "
    assert detector.detect(english * 20_000) == "english"


def test_is_shared_between_threads() -> None:
    fresh = Py3LangidDetector()
    text = "The backups run every night and are checked before the office opens."
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(fresh.detect, [text] * 8)) == {"english"}
