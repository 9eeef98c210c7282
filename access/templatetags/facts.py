"""What a page says of something, name by name."""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_block_tag
def fact(content: SafeString, name: str, *, attention: object = False) -> str:
    """One entry of a `<dl>`; what has no value has no entry."""
    if not content.strip():
        return ""
    begin = '<div class="attention">' if attention else "<div>"
    return format_html(begin + "<dt>{}</dt><dd>{}</dd></div>", name, content)
