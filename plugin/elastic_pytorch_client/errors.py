"""What can go wrong between a client and the API server, each in one line that says what to do."""

import json
import re
from collections.abc import Mapping
from typing import Any

# The API server puts it before the sentence of a rule.
INVALID_VALUE = re.compile(r"^Invalid value: [^:]*: ")


class EpjError(Exception):
    """What went wrong, in one line for people: the base of all errors of the client."""


class NoSuchJob(EpjError):
    """There is no job of that name."""


class NoJobKind(EpjError):
    """The cluster does not know ElasticPyTorchJobs: the operator's chart is not installed."""


class NotAllowed(EpjError):
    """The user may not do this."""


class Refused(EpjError):
    """The API server does not accept what it was sent."""


class Unreachable(EpjError):
    """There is no answer from the API server, or no way to it is configured."""


class NotFound(EpjError):
    """There is no object of that name, of another kind than a job."""


class JobFailed(EpjError):
    """A job that was waited for has failed.

    Attributes:
        reason: the reason of its condition `Failed`, such as `TooManyFailures`.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class TimedOut(EpjError):
    """A wait has ended before what it waits for has come."""


def error_of(code: int, answer: bytes, job: tuple[str, str] | None = None) -> EpjError:
    """What an HTTP status and the body of an answer mean; the job is the namespace and name that were asked for."""
    try:
        status = json.loads(answer)
        message, details = str(status["message"]), status.get("details") or {}
    except (ValueError, KeyError, TypeError):
        message, details = answer[:300].decode(errors="replace").strip(), {}
    match code:
        case 404 if job is not None and details.get("name"):
            namespace, name = job
            return NoSuchJob(
                f'there is no ElasticPyTorchJob "{name}" in namespace "{namespace}"; `kubectl epj list -A` shows all'
            )
        case 404 if not details.get("name"):
            return NoJobKind(
                "this cluster does not have the kind ElasticPyTorchJob: install the chart elastic-pytorch-operator"
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
    """What became of a command: the client has one kind of error for all, with the HTTP status in its words."""
    said = one_line(getattr(error, "reason", None) or error)
    if getattr(error.__context__, "status_code", None) == 403:
        return NotAllowed(
            f"you may not run a command in pod {pod}: it needs the verbs get and create on pods/exec in {namespace}"
        )
    return Unreachable(f"cannot run a command in pod {pod}: {said}")


def _cause(cause: Mapping[str, Any]) -> str:
    """The field and the sentence of one cause of a refusal, without the value that was sent."""
    message = INVALID_VALUE.sub("", one_line(cause.get("message", "")))
    field = str(cause.get("field", ""))
    return f"{field}: {message}" if field and field != "<nil>" else message


def one_line(error: object) -> str:
    return " ".join(str(error).split())


def reason_of(error: BaseException) -> str:
    """The innermost reason of a connection error: the outer ones quote objects."""
    while (inner := getattr(error, "reason", None)) is not None and isinstance(
        inner, BaseException
    ):
        error = inner
    text = one_line(error)
    return text.rpartition(": ")[2] if text.startswith(("<", "HTTP")) and ": " in text else text
