"""One JSON object a line: a constant event and ids."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any

from config.request_ids import current_request_id

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SIMPLE = (str, int, float, bool, type(None), list, tuple, dict)
# Extras by which frameworks hand over whole requests and results.
_NEVER = frozenset({"request", "data", "exc", "args", "kwargs", "sql", "params"})


class JsonFormatter(logging.Formatter):
    """An exception is its type and where it was raised: messages of errors quote data."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if request_id := current_request_id():
            line["request_id"] = request_id
        line |= {
            name: value
            for name, value in vars(record).items()
            if name not in _STANDARD and name not in _NEVER and isinstance(value, _SIMPLE)
        }
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            line["error"] = f"{kind.__module__}.{kind.__qualname__}"
            line["stack"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(trace)[-12:]
            ]
        return json.dumps(line, default=str, ensure_ascii=False)
