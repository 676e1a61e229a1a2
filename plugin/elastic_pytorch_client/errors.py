"""The errors between a client and the API server, each in one line with the remedy."""

import json
import re
from collections.abc import Mapping
from typing import Any

# The API server's words before the sentence of a rule.
INVALID_VALUE = re.compile(r"^Invalid value: [^:]*: ")


class EpjError(Exception):
    """The base of all errors of the client, with one line for people."""


class NoSuchJob(EpjError):
    """There is no job of that name."""


class NoJobKind(EpjError):
    """The cluster does not know ElasticPyTorchJobs: the operator's chart is not installed."""


class NotAllowed(EpjError):
    """The user may not do this."""


class Refused(EpjError):
    """The API server does not accept what it was sent."""


class Unreachable(EpjError):
    """The API server does not answer, or no way to it is configured."""


class NotFound(EpjError):
    """There is no object of that name, of a kind other than a job."""


class JobFailed(EpjError):
    """A job that was waited for has failed.

    Attributes:
        reason: the reason of its condition `Failed`, such as `TooManyFailures`.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class TimedOut(EpjError):
    """A wait has ended without its result."""


def error_of(code: int, answer: bytes, job: tuple[str, str] | None = None) -> EpjError:
    try:
        status = json.loads(answer)
        message, details = str(status["message"]), status.get("details") or {}
    except (ValueError, KeyError, TypeError):
        message, details = answer[:300].decode(errors="replace").strip(), {}
    match code:
        case 404 if job is not None and details.get("name"):
            namespace, name = job
            here = f'there is no ElasticPyTorchJob "{name}" in namespace "{namespace}"'
            return NoSuchJob(f"{here}; `kubectl epj list -A` shows all")
        case 404 if not details.get("name"):
            return NoJobKind(
                "this cluster does not have the kind ElasticPyTorchJob: install the chart "
                "elastic-pytorch-operator"
            )
        case 404:
            return NotFound(message)
        case 401:
            return NotAllowed(
                "the API server does not accept your credentials: they may have expired"
            )
        case 403:
            return NotAllowed(one_line(message))
        case 422 if causes := details.get("causes"):
            return Refused("; ".join(_cause(cause) for cause in causes))
        case 400 | 409 | 422:
            return Refused(one_line(message))
        case _:
            return Unreachable(f"the API server answers {code}: {one_line(message)}")


def error_of_exec(error: Exception, namespace: str, pod: str) -> EpjError:
    """The error of a command; the client's only has the HTTP status in its words."""
    said = one_line(getattr(error, "reason", None) or error)
    if getattr(error.__context__, "status_code", None) == 403:
        needs = f"it needs the verbs get and create on pods/exec in {namespace}"
        return NotAllowed(f"you may not run a command in pod {pod}: {needs}")
    return Unreachable(f"cannot run a command in pod {pod}: {said}")


def _cause(cause: Mapping[str, Any]) -> str:
    message = INVALID_VALUE.sub("", one_line(cause.get("message", "")))
    field = str(cause.get("field", ""))
    return f"{field}: {message}" if field and field != "<nil>" else message


def one_line(error: object) -> str:
    return " ".join(str(error).split())


def reason_of(error: BaseException) -> str:
    """The innermost reason of a connection error, as the outer ones quote objects."""
    while isinstance(inner := getattr(error, "reason", None), BaseException):
        error = inner
    text = one_line(error)
    return text.rpartition(": ")[2] if text.startswith(("<", "HTTP")) and ": " in text else text
