"""`spec.prepare`: the set-up of a worker's script before its group exists."""

from collections.abc import Mapping
from typing import Any

from elastic_pytorch_operator.spec.fields import InvalidJob, read_integer

PATH = "spec.prepare"
DEFAULT_SECONDS, MOST_SECONDS = 1800, 86_400


def read_prepare_seconds(spec: Mapping[str, Any]) -> int:
    """Reads `prepare`: how long the set-up of a script may take, seconds; 0: a script starts when its group exists.

    Args:
        spec: of the job.

    Raises:
        InvalidJob: a field is out of bounds.
    """
    prepare = spec.get("prepare")
    if prepare is None:
        return 0
    if not isinstance(prepare, Mapping):
        raise InvalidJob(PATH, "must be an object, such as {timeoutSeconds: 1800}")
    return read_integer(prepare, "timeoutSeconds", DEFAULT_SECONDS, PATH, least=1, most=MOST_SECONDS) or DEFAULT_SECONDS
