"""Structured logs: JSON objects, or text for people."""

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _extra(record).items())
        text = f"{_time_of(record)} {record.levelname:7} {record.getMessage()}{fields}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def configure_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _time_of(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return time.replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {
        name: value
        for name, value in record.__dict__.items()
        if name not in _STANDARD and not name.startswith("_")
    }
