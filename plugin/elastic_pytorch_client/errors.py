"""What can go wrong between a client and the API server, each in one line that says what to do."""


class EpjError(Exception):
    """Something that a person should read, in one line."""


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
        reason: of its Failed condition, such as `TooManyFailures`.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class TimedOut(EpjError):
    """What was waited for did not come in time."""
