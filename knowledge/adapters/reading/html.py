"""HTML as Markdown: what a reader of the page sees of its main content.

lxml takes away what is not that, html-to-markdown writes what is left. Inline markup and link
addresses are left out, so that a sentence stands in the text as it stands on the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import html_to_markdown
from lxml import etree, html

from knowledge.adapters.reading.answers import NoText, Reading, Reason, repaired

_LONGEST_ATTRIBUTE = 100_000

_NEVER_TEXT = "script|style|template|noscript|svg|canvas|iframe|object|embed|video|audio|head"
_CONTROLS = "button|select|option|datalist|input|textarea|dialog[not(@open)]"
_INLINE = (
    *("a", "abbr", "b", "bdi", "bdo", "big", "cite", "del", "dfn", "em", "font", "i", "ins"),
    *("kbd", "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup"),
    *("time", "tt", "u", "var", "wbr", "samp", "output", "data"),
)
_SECTIONS = frozenset(
    (
        *("main", "article", "section", "nav", "aside", "header", "footer", "hgroup"),
        *("form", "fieldset", "center"),
    )
)
_PARAGRAPHS = frozenset(("summary", "dt", "dd", "legend", "figcaption"))
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_MEANT = frozenset(("start", "colspan", "rowspan", "reversed", "value"))
_ROLES = "navigation|banner|contentinfo|search|complementary|menu|menubar|dialog|alertdialog"
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|opacity\s*:\s*0*(?:\.0+)?\s*(?:;|!|$)"
    r"|font-size\s*:\s*0*(?:\.0+)?(?:px|pt|em|rem|%)?\s*(?:;|!|$)|(?<![\w-])color\s*:\s*transparent"
    r"|(?:text-indent|left|top|right)\s*:\s*-\d{3,}|clip\s*:\s*rect\(\s*0|clip-path\s*:\s*inset\(\s*(?:50|100)%",
    re.IGNORECASE,
)
_XML_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>")

# Lines outside of code that begin an HTML block up to its own end mark, which may never come.
_OPENS_HTML = re.compile(r"\s{0,3}(?=<(?:!|\?|/?(?:script|pre|style|textarea)\b))", re.IGNORECASE)
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")

_DATES = (
    *("article:modified_time", "og:updated_time", "dcterms.modified", "last-modified"),
    *("date", "dcterms.date", "dc.date", "article:published_time", "dcterms.created", "pubdate"),
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


def extract(content: bytes) -> Reading:
    """`content` is UTF-8: its encoding has been settled before."""
    return page(content.decode("utf-8"), main_content=True)


def page(source: str, *, main_content: bool) -> Reading:
    root = _parsed(source)
    metadata = _metadata(root)
    unshown = [*_attributes(root)]
    unshown += _taken_away(root, (f"//{name}" for name in _NEVER_TEXT.split("|")))
    hidden = list(_hidden(root))
    unshown += _comments(root)
    warnings = []
    if any(text.strip() for text in hidden):
        warnings.append("hidden_text_dropped")
    list(_taken_away(root, (f"//{name}" for name in _CONTROLS.split("|"))))
    body = root.find("body")
    body = root if body is None else body
    if main_content:
        body = _main(body)
    _plainly(body)
    text = _markdown(body)
    if not text.strip():
        raise NoText(Reason.EMPTY, "Nothing in this document would be seen by a reader.")
    return Reading(
        text=repaired(text),
        warnings=warnings,
        metadata={name: repaired(value) for name, value in metadata.items()},
        unshown=repaired("\n".join([*unshown, *hidden])),
        hidden=repaired("\n".join(hidden)),
    )


def _parsed(source: str) -> Any:
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, no_network=True)
    without = _XML_DECLARATION.sub("", source, count=1)
    try:
        root = html.document_fromstring(without.encode("utf-8"), parser=parser)
    except etree.ParserError:
        raise NoText(Reason.EMPTY, "There is no element in this document.") from None
    except etree.XMLSyntaxError:
        # The parser repairs everything else.
        raise MemoryError from None
    if any(entry.type_name == "ERR_RESOURCE_LIMIT" for entry in parser.error_log):
        raise NoText(Reason.UNREADABLE, "The elements of this document are nested too deeply.")
    return root


# --- what is not shown -----------------------------------------------------------------------


def _taken_away(root: Any, paths: Iterator[str]) -> Iterator[str]:
    """Remove the elements, and give the text that was in them."""
    for path in paths:
        for element in root.xpath(path):
            if element.getparent() is not None and element is not root:
                yield str(element.text_content()) if isinstance(element.tag, str) else ""
                element.drop_tree()


def _hidden(root: Any) -> Iterator[str]:
    """Remove what is made invisible, and give its text."""
    for element in root.xpath("//*[@hidden or @aria-hidden='true' or @style]"):
        invisible = (
            element.get("hidden") is not None
            or element.get("aria-hidden") == "true"
            or _HIDING.search(element.get("style", "")) is not None
        )
        if invisible and element.getparent() is not None and element.tag != "body":
            yield str(element.text_content())
            element.drop_tree()


def _comments(root: Any) -> Iterator[str]:
    for comment in root.xpath("//comment()|//processing-instruction()"):
        yield str(comment.text or "")
        if comment.getparent() is not None:
            comment.drop_tree()


def _attributes(root: Any) -> Iterator[str]:
    """Values that could be more than layout: addresses, form values, data, descriptions."""
    for element in root.iter(etree.Element):
        for name, value in element.attrib.items():
            known = name not in {"class", "id", "style", "d", "points", "srcset"}
            if known and value.strip() and not value.startswith("data:"):
                yield f'{name}="{value[:_LONGEST_ATTRIBUTE]}"'


# --- the main content ------------------------------------------------------------------------


def _main(body: Any) -> Any:
    """The element that says it is the main content, else the body without what says it is not."""
    for path in (".//main|.//*[@role='main']", ".//article"):
        found = [element for element in body.xpath(path) if _has_words(element)]
        if len(found) == 1:
            list(_taken_away(found[0], iter([".//nav", ".//*[@role='navigation']"])))
            if _has_words(found[0]):
                return found[0]
    dropped = [
        ".//nav",
        ".//aside",
        ".//footer[not(ancestor::article)]",
        ".//header[not(ancestor::article) and not(.//h1)]",
        *(f".//*[@role='{role}']" for role in _ROLES.split("|")),
    ]
    whole = deepcopy(body)
    list(_taken_away(body, iter(dropped)))
    return body if _has_words(body) else whole


def _has_words(element: Any) -> bool:
    return bool(element.text_content().strip())


def _plainly(body: Any) -> None:
    """Leave inline elements out and their text in, so that a sentence stands as it is read.

    What is main content has been decided: nothing is left that could be taken for anything else.
    """
    for element in body.iter(etree.Element):
        if element.tag in _SECTIONS:
            element.tag = "div"
        elif element.tag in _PARAGRAPHS:
            element.tag = "p"
        for name in element.attrib:
            if name not in _MEANT and not (name == "class" and element.tag in {"pre", "code"}):
                del element.attrib[name]
    for caption in list(body.iter("caption")):
        caption.tag = "p"
        if caption.getparent().tag == "table":
            caption.getparent().addprevious(caption)
    for element in list(body.iter("code", *_INLINE)):
        is_block = element.tag == "code" and any(True for _ in element.iterancestors("pre"))
        if element is not body and not is_block:
            element.drop_tag()
    for heading in body.iter(*_HEADINGS):
        _on_one_line(heading)


def _on_one_line(heading: Any) -> None:
    for line_end in heading.iter("br"):
        line_end.tail = f" {line_end.tail or ''}"
    words, tail = " ".join(heading.text_content().split()), heading.tail
    heading.clear()
    heading.text, heading.tail = words, tail


def _markdown(body: Any) -> str:
    options = html_to_markdown.ConversionOptions(
        extract_metadata=False,
        skip_images=True,
        strong_em_symbol="",
        autolinks=False,
        bullets="-",
        compact_tables=True,
        hidden_content="drop",
    )
    source = html.tostring(body, encoding="unicode", with_tail=False)
    result = html_to_markdown.convert(source, options)
    if result.warnings:
        raise NoText(Reason.UNREADABLE, "The elements of this document are nested too deeply.")
    return "\n".join(_guarded((result.content or "").split("\n")))


def _guarded(lines: list[str]) -> Iterator[str]:
    """The lines, with a backslash before text that Markdown would take for the start of HTML."""
    fence = ""
    for line in lines:
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif mark:
            fence = mark[1]
        elif opened := _OPENS_HTML.match(line):
            yield line[: opened.end()] + "\\" + line[opened.end() :]
            continue
        yield line


# --- what it says of itself ------------------------------------------------------------------


def _metadata(root: Any) -> dict[str, str]:
    """`title`, `language`, and `date`: when it was last changed, else made."""
    stated: dict[str, str] = {}
    for element in root.xpath(
        "//meta[@content and (@name or @property or @http-equiv or @itemprop)]"
    ):
        name = next(
            element.get(key)
            for key in ("name", "property", "http-equiv", "itemprop")
            if element.get(key) is not None
        )
        stated.setdefault(name.strip().lower(), element.get("content").strip())
    found = {
        "title": " ".join("".join(root.xpath("(//head//title)[1]//text()")).split()),
        "language": root.get("lang", ""),
        **{name: stated.get(name, "") for name in ("author", "description", "keywords")},
        "date": next((day[0] for name in _DATES if (day := _DAY.match(stated.get(name, "")))), ""),
    }
    return {name: value for name, value in found.items() if value}
