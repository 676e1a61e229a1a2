"""Judges what an error of the API server means for a write. Pure.

The code is not enough: a webhook's denial carries the code that the webhook chose, or 400. A
ValidatingAdmissionPolicy's is 422 unless the policy says otherwise, and so is that of the API
server's own validation. Only the message tells them apart, so this module reads its English.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# How a message begins when the API server itself has decoded or validated a pod or a volume claim
# (apimachinery, errors.go: NewInvalid; apiserver, rest.go: transformDecodeError). Messages of
# admission begin otherwise: `admission webhook "...`, `pods "..." is forbidden: `.
_KIND = "(?:Pod|PersistentVolumeClaim)"
MALFORMED = re.compile(
    rf'{_KIND} "[^"]*" is invalid: |{_KIND} in version "[^"]*" cannot be handled as a {_KIND}: '
)
# Of a webhook or a policy that chooses its own code, and of a webhook that cannot be called.
ADMISSION = re.compile(r"denied (the )?request|failed calling webhook")
REFUSAL_CODES = (400, 403, 422)
# Of lists and watches in a namespace whose Role is gone, mostly because the namespace is deleted.
UNAVAILABLE_CODES = (403, 404)


class Judgement(Enum):
    MALFORMED = "malformed"  # the API server itself finds it invalid: no use in trying again
    REFUSED = "refused"  # by a policy, a quota or a webhook, which may change
    # A conflict, too many requests, or an API server that fails or does not answer.
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Cause:
    reason: str = ""
    message: str = ""
    field: str = ""


def judge(code: int, message: str, causes: Sequence[Cause] = ()) -> Judgement:
    """Judges an error; 0 as its code: no answer.

    The API server's own validation names a field in each cause; a policy's denial does not.
    """
    if code in (400, 422) and MALFORMED.match(message) and all(cause.field for cause in causes):
        return Judgement.MALFORMED
    if code in REFUSAL_CODES or ADMISSION.search(message):
        return Judgement.REFUSED
    return Judgement.TROUBLE
