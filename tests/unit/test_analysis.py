"""Words of texts and queries: identifiers, scripts, folding, limits and time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knowledge.core.analysis import MAX_WORD, Term, analyse

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=80)
identifier_text = st.text(st.sampled_from(list("aB1éЖ-_./\\@+#:汉ก้ \u0301\u200b\n")), max_size=60)


def words(text: str) -> list[str]:
    return [term.word for term in analyse(text)]


def at(text: str) -> dict[int, set[str]]:
    places: dict[int, set[str]] = {}
    for term in analyse(text):
        places.setdefault(term.position, set()).add(term.word)
    return places


def test_plain_words_are_stemmed_and_numbered() -> None:
    assert analyse("The kettle, boiling!") == [
        Term("the", 1, True),
        Term("kettle", 2, True),
        Term("boiling", 3, True),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min_pool_size", ["min_pool_size", "min", "pool", "size"]),
        ("minPoolSize", ["minpoolsize", "min", "pool", "size"]),
        ("MinPoolSize", ["minpoolsize", "min", "pool", "size"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("valve-box", ["valve-box", "valve", "box"]),
        ("read/write", ["read/write", "read", "write"]),
        ("site.conf.toml", ["site.conf.toml", "site", "conf", "toml"]),
        ("INC-2207", ["inc-2207", "inc", "2207"]),
        ("v2.4.1", ["v2.4.1", "2.4.1", "2.4"]),
        ("python3.11", ["python3.11", "python", "3.11"]),
        ("covid19", ["covid19", "covid", "19"]),
        ("C++", ["c++"]),
        ("C#", ["c#"]),
        ("C++17", ["c++17", "c++"]),
        ("libgomp++", ["libgomp++", "libgomp"]),
        (".NET", [".net", "net"]),
        ("deno.js", ["deno.js", "deno", "js"]),
        ("__enter__", ["enter"]),
        ("mRNA", ["mrna"]),
        ("iPhone", ["iphone"]),
        (
            "tool-1.2.3.tar.gz",
            ["tool-1.2.3.tar.gz", "tool-1.2.3", "tool", "1.2.3", "1.2", "tar", "gz"],
        ),
        (
            "a.b@c-d.example",
            ["a.b@c-d.example", "a.b", "a", "b", "c-d.example", "c-d", "c", "d", "example"],
        ),
    ],
)
def test_identifiers_whole_and_in_parts(text: str, expected: list[str]) -> None:
    assert words(text) == expected
    assert words(f"({text}), “{text}”.") == expected * 2


def test_a_url_is_found_by_itself_its_host_and_its_file() -> None:
    found = words("see https://wiki.example.test/ops/valve-box.html?x=1#top.")
    assert "https://wiki.example.test/ops/valve-box.html?x=1#top" in found
    assert {"wiki.example.test", "wiki", "ops", "valve-box.html", "valve-box", "valve"} <= set(
        found
    )


def test_a_hyphenated_name_and_its_words_are_the_same_phrase() -> None:
    hyphenated, spaced = at("the valve-box leaks"), at("the valve box leaks")
    assert all(spaced[position] <= hyphenated[position] for position in spaced)
    assert hyphenated.keys() == spaced.keys()


def test_whole_forms_with_other_characters_are_never_stemmed() -> None:
    stems = {term.word: term.stem for term in analyse("retry_counts 3.11 valve-boxes C++")}
    assert stems == {
        "retry_counts": False,
        "retry": True,
        "counts": True,
        "3.11": False,
        "valve-boxes": False,
        "valve": True,
        "boxes": True,
        "c++": False,
    }


def test_compounds_are_marked_so_that_a_query_can_rely_on_their_parts() -> None:
    compound = {term.word for term in analyse("valve-box 2.4.1 C++ min_size") if term.compound}
    assert compound == {"valve-box", "min_size"}


def test_there_is_no_query_syntax() -> None:
    plain = words("copper kettle or valve")
    for text in (
        '"copper kettle" OR -valve',
        "(copper & kettle) | or !valve:*",
        "copper <-> kettle or valve'",
        "-" * 45 + " copper kettle or valve " + "- " * 80,
        "| --- | copper kettle | or | valve |",
    ):
        assert words(text) == plain
    assert words("🚀🔥 --- ''") == []


def test_control_tokens_of_models_are_ordinary_words() -> None:
    assert words("<|endoftext|> <|im_start|>user [INST]") == [
        "endoftext",
        "im_start",
        "im",
        "start",
        "user",
        "inst",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Crème brûlée", "creme brulee"),
        ("STRASSE", "Straße"),
        ("ΚΑΛΗΜΈΡΑΣ", "καλημερας"),
        ("Ёлка", "елка"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("so\u00adft\u200b hy\ufeffphen", "soft hyphen"),
        ("Łódź Ørsted", "lodz orsted"),
        ("ﬁle", "file"),
        ("e\u0301cole", "\u00e9cole"),
        ("İstanbul", "istanbul"),
        ("مُحَمَّد", "محمد"),
    ],
)
def test_spellings_that_are_one_word(one: str, other: str) -> None:
    stored = [[term._replace(accented="") for term in analyse(text)] for text in (one, other)]
    assert stored[0] == stored[1]


def test_short_i_is_a_letter() -> None:
    assert words("мой") == ["мой"]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("请在重启之前检查账本", "检查"),
        ("南側の倉庫で確認する", "倉庫"),
        ("กรุณาตรวจสอบบัญชีก่อน", "บัญชี"),
        ("도서관에서 읽는다", "도서관"),
        ("nightly备份job", "备份"),
    ],
)
def test_a_word_inside_an_unspaced_run_is_found(text: str, inside: str) -> None:
    assert set(words(inside)) <= set(words(text))
    assert not any(term.stem for term in analyse(inside))


def test_mixed_scripts_in_one_run() -> None:
    assert words("cron备份任务UTC") == ["cron", "备份", "份任", "任务", "utc"]
    assert words("库") == ["库"]


def test_marks_belong_to_their_letters() -> None:
    assert words("हिन्दी शब्द") == ["हिन्दी", "शब्द"]


def test_long_words_keep_an_identity_of_bounded_length() -> None:
    long, other = "x" * 3_000, "x" * 2_999 + "y"
    assert len(words(long)[0]) <= MAX_WORD
    assert words(long) == words(long.upper()) != words(other)


@given(st.one_of(any_text, identifier_text))
def test_no_text_raises_and_every_term_is_sound(text: str) -> None:
    terms = analyse(text)
    positions = sorted({term.position for term in terms})
    assert positions == list(range(1, len(positions) + 1))
    for term in terms:
        assert 0 < len(term.word) <= MAX_WORD
        assert not any(c.isspace() or c == "\0" or 0xD800 <= ord(c) < 0xE000 for c in term.word)
        assert term.word.isalpha() or not term.stem


@given(st.one_of(any_text, identifier_text))
def test_each_plain_word_is_found_by_its_own_spelling(text: str) -> None:
    for term in analyse(text):
        if term.stem and not term.compound:
            assert term.word in words(term.word)


@given(st.one_of(any_text, identifier_text), st.one_of(any_text, identifier_text))
def test_a_text_gives_the_same_words_wherever_it_stands(before: str, text: str) -> None:
    alone = words(text)
    assert words(f"{before} {text}")[len(words(before)) :] == alone


@pytest.mark.parametrize(
    "unit",
    ["a", "aB", "_", "-", "a-", "a_", "1.", "汉", "a/", ".", "+", "a+", "://", "a\u0301\u0316",
     "\u0301\u0316", "\uff9e\u0316", "हि", "http://a/", "\ufdfa", "A#"],
)  # fmt: skip
def test_time_is_linear_in_hostile_text(unit: str) -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        analyse("a" + unit * count)
        return time.process_time() - started

    # Quadratic time would be a hundredfold; the rest is room for a busy machine.
    assert min(seconds(20_000), seconds(20_000)) < 40 * max(seconds(2_000), 0.01)


@settings(max_examples=20)
@given(st.text(min_size=65, max_size=300))
def test_memory_of_seen_words_does_not_change_an_answer(text: str) -> None:
    assert analyse(text) == analyse(text)


def test_a_word_with_accents_keeps_them_for_the_stemmer_alone() -> None:
    fur, plain, camel = analyse("Für fur Grüße")
    assert (fur.word, fur.spelling) == ("fur", "für")
    assert (plain.word, plain.spelling) == ("fur", "fur")
    assert (camel.word, camel.spelling) == ("grusse", "grüße")
