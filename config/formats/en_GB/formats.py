"""Dates as the API writes them; a time never without its distance to UTC."""

from __future__ import annotations

DATE_FORMAT = SHORT_DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = SHORT_DATETIME_FORMAT = "Y-m-d H:i O"
