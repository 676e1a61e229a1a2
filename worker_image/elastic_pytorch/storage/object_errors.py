"""Translates obstore's errors into errors with the bucket and the remedy."""

import errno
import re

from elastic_pytorch.object_url import ObjectUrl

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from a Secret, "
    "or a service account with a role (IRSA, EKS Pod Identity), "
    "or a mounted file named by AWS_SHARED_CREDENTIALS_FILE",
    "gs": "a service account with Workload Identity, "
    "or a mounted key file named by GOOGLE_APPLICATION_CREDENTIALS",
}

# From the services' answers. The library's own text comes last, and names only the request.
_NO_BUCKET = re.compile(r"NoSuchBucket|The specified bucket does not exist")
_EXPIRED = re.compile(
    r"ExpiredToken|TokenRefreshRequired|RequestExpired|token (?:has|is) expired", re.IGNORECASE
)
_REFUSED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|"
    r"40[13] (?:Unauthorized|Forbidden)"
)
_NO_CREDENTIALS = re.compile(
    r"169\.254\.\d+\.\d+|metadata\.google\.internal|/latest/(?:api/token|meta-data)"
    r"|[Mm]issing ?(?:credential|access key|token)"
)
_NO_CONDITIONS = re.compile(
    r"NotImplemented|501 Not Implemented|not (?:yet )?(?:implemented|supported)"
)
_REGION = re.compile(
    r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|301 Moved"
)


def plain_error(error: Exception, url: ObjectUrl) -> OSError:
    """Returns FileNotFoundError only for a missing object."""
    text = str(error)
    reason = _reason(text)
    name = str(url)
    if _NO_BUCKET.search(text):
        # Callers take a missing file for an empty folder, but a missing bucket must not be one.
        problem = f"there is no bucket {url.bucket}: create it, or correct the URL"
        return OSError(errno.ENODEV, f"{problem} ({reason})", name)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", name)
    bucket, credentials = f"bucket {url.bucket}", CREDENTIALS[url.scheme]
    for pattern, number, problem in (
        (_EXPIRED, errno.EACCES, f"the credentials for {bucket} have expired: renew {credentials}"),
        (_NO_CREDENTIALS, errno.EACCES, f"no credentials for {bucket}: give the pod {credentials}"),
        (_REGION, errno.EIO, f"{bucket} is in another region: set AWS_REGION in the pod"),
        (
            _REFUSED,
            errno.EACCES,
            f"{bucket} refuses these credentials: allow them to list the prefix and to "
            "get, put and delete objects below it",
        ),
    ):
        if pattern.search(text):
            return OSError(number, f"{problem} ({reason})", name)
    return OSError(errno.EIO, f"{bucket}: {reason}", name)


def lacks_conditions(error: Exception) -> bool:
    return bool(_NO_CONDITIONS.search(str(error)))


def _reason(text: str) -> str:
    code = re.search(r"<Code>([^<]*)</Code>", text)
    message = re.search(r"<Message>([^<]*)</Message>", text)
    text = text.partition("\n")[0]
    if code:
        text = f"{code[1]}: {message[1]}" if message else code[1]
    return text[:300]
