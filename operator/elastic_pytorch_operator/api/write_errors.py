"""Judges what an error of the API server means for a write. Pure.

A webhook chooses the code of its denial, and a ValidatingAdmissionPolicy's is 422 by default, as is
that of the API server's own validation. Only the English of the message tells them apart.
"""

import re
from collections.abc import Sequence
from enum import Enum

# How a message begins when the API server itself has decoded or validated a pod or a volume claim
# (apimachinery, errors.go: NewInvalid; apiserver, rest.go: transformDecodeError). Messages of
# admission begin otherwise: `admission webhook "...`, `pods "..." is forbidden: `.
_KIND = "(?:Pod|PersistentVolumeClaim)"
MALFORMED = re.compile(
    rf'{_KIND} "[^"]*" is invalid: |{_KIND} in version "[^"]*" cannot be handled as a {_KIND}: '
)
# Whatever the code: a denial, or a webhook that cannot be called.
ADMISSION = re.compile(r"denied (the )?request|failed calling webhook")
REFUSAL_CODES = (400, 403, 422)
# Of lists and watches in a namespace whose Role is gone, mostly because the namespace is deleted.
UNAVAILABLE_CODES = (403, 404)


class Judgement(Enum):
    MALFORMED = "malformed"  # by the API server itself: no use in trying again
    REFUSED = "refused"  # by a policy, a quota or a webhook, which may change
    TROUBLE = "trouble"  # a conflict, too many requests, or a fault of the API server


def judge(code: int, message: str, fields: Sequence[str] = ()) -> Judgement:
    """Judges an error by its causes' fields; code 0: no answer.

    The API server's own validation names a field in each cause, unlike a policy's denial.
    """
    if code in (400, 422) and MALFORMED.match(message) and all(fields):
        return Judgement.MALFORMED
    if code in REFUSAL_CODES or ADMISSION.search(message):
        return Judgement.REFUSED
    return Judgement.TROUBLE
