"""What a page says of something, name by name."""

from __future__ import annotations

import pytest
from django.template import Context, Template


def shown(source: str, **values: object) -> str:
    return Template("{% load facts %}" + source).render(Context(values))


def test_a_fact_is_an_entry_whose_name_and_value_are_escaped_once() -> None:
    source = "{% fact name %}\n  <bdi>{{ value }}</bdi>\n{% endfact %}"
    entry = shown(source, name="<b>", value="a & b")
    assert "".join(entry.split("\n")) == (
        "<div><dt>&lt;b&gt;</dt><dd>  <bdi>a &amp; b</bdi></dd></div>"
    )


@pytest.mark.parametrize(
    ("marked", "begin"), [(0, "<div>"), (3, '<div class="attention">'), (None, "<div>")]
)
def test_what_wants_attention_is_marked(marked: object, begin: str) -> None:
    entry = shown('{% fact "Stale" attention=marked %}1{% endfact %}', marked=marked)
    assert entry == f"{begin}<dt>Stale</dt><dd>1</dd></div>"


def test_what_has_no_value_has_no_entry() -> None:
    source = '{% fact "Ended" %}\n{{ at|date:"Y-m-d" }}\n{% endfact %}'
    assert shown(source, at=None) == ""
    assert shown('{% fact "Chunks" %}{{ count }}{% endfact %}', count=0) != ""
