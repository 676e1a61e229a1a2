"""What an error of the API server means for a write: the object is malformed, it is refused, or there is trouble that may pass.

The code is not enough. A webhook's denial carries the code that the webhook chose, 400 if it chose
none. A ValidatingAdmissionPolicy's is 422 unless the policy says otherwise. 422 is also what the
API server's own validation answers. Only the message tells them apart, so this module reads the API
server's English. Pure.
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
# The message of a webhook or a policy that chooses its own code, and of a webhook that cannot be
# called.
ADMISSION = re.compile(r"denied (the )?request|failed calling webhook")
REFUSAL_CODES = (400, 403, 422)
# Of lists and watches in a namespace whose Role is gone, mostly because the namespace is deleted.
UNAVAILABLE_CODES = (403, 404)


class Judgement(Enum):
    # The API server itself cannot read it, or finds it invalid: no use in trying again.
    MALFORMED = "malformed"
    REFUSED = "refused"  # a policy, a quota or a webhook refuses it: that may be lifted
    # A conflict, too many requests, an API server that fails or does not answer: it may pass at
    # once.
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Cause:
    reason: str = ""
    message: str = ""
    field: str = ""


def judge(code: int, message: str, causes: Sequence[Cause] = ()) -> Judgement:
    """Judges an error.

    Args:
        code: the HTTP status; 0: no answer.
        causes: of its details. Those of the API server's own validation name fields; that of a
            policy's denial names none.
    """
    if code in (400, 422) and MALFORMED.match(message) and all(cause.field for cause in causes):
        return Judgement.MALFORMED
    if code in REFUSAL_CODES or ADMISSION.search(message):
        return Judgement.REFUSED
    return Judgement.TROUBLE
