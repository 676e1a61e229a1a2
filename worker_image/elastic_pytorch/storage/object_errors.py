"""What the object storage's library raises, as errors that say which bucket it is about, and what to do."""

import errno
import re

from elastic_pytorch.object_url import ObjectUrl

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from a Secret, or a service account with a role (IRSA, EKS Pod Identity), or a "
    "mounted file named by AWS_SHARED_CREDENTIALS_FILE",
    "gs": "a service account with Workload Identity, or a mounted key file named by GOOGLE_APPLICATION_CREDENTIALS",
}

# From what the services answer; the words of the library come last, which says only which request
# failed.
_NO_BUCKET = re.compile(r"NoSuchBucket|The specified bucket does not exist")
_EXPIRED = re.compile(
    r"ExpiredToken|TokenRefreshRequired|RequestExpired|token (?:has|is) expired", re.IGNORECASE
)
_REFUSED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|"
    r"40[13] (?:Unauthorized|Forbidden)"
)
_NO_CREDENTIALS = re.compile(
    r"169\.254\.\d+\.\d+|metadata\.google\.internal|/latest/(?:api/token|meta-data)|[Mm]issing ?(?:credential|access key|token)"
)
_NO_CONDITIONS = re.compile(
    r"NotImplemented|501 Not Implemented|not (?:yet )?(?:implemented|supported)"
)
_REGION = re.compile(
    r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|301 Moved"
)


def plain_error(error: Exception, url: ObjectUrl) -> OSError:
    """Returns the error that a failed request to a bucket means.

    Returns:
        A FileNotFoundError only if the object is not there: a bucket that is not there is an error
        of another kind.
    """
    text = str(error)
    told = _words(text)
    name = str(url)
    if _NO_BUCKET.search(text):
        # A missing file means an empty folder to the callers. A bucket that has gone must not.
        return OSError(
            errno.ENODEV,
            f"there is no bucket {url.bucket}: create it, or correct the URL ({told})",
            name,
        )
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such object", name)
    if _EXPIRED.search(text):
        return PermissionError(
            errno.EACCES,
            f"the credentials for bucket {url.bucket} have expired: "
            f"renew {CREDENTIALS[url.scheme]} ({told})",
            name,
        )
    if _NO_CREDENTIALS.search(text):
        return PermissionError(
            errno.EACCES,
            f"no credentials for bucket {url.bucket}: give the pod {CREDENTIALS[url.scheme]} "
            f"({told})",
            name,
        )
    if _REGION.search(text):
        return OSError(
            errno.EIO,
            f"bucket {url.bucket} is in another region: set AWS_REGION in the pod ({told})",
            name,
        )
    if _REFUSED.search(text):
        return PermissionError(
            errno.EACCES,
            f"bucket {url.bucket} refuses these credentials: allow them to list the prefix and to "
            f"get, put and delete objects below it ({told})",
            name,
        )
    return OSError(errno.EIO, f"bucket {url.bucket}: {told}", name)


def lacks_conditions(error: Exception) -> bool:
    """Whether a conditional write has failed because the storage does not know any."""
    return bool(_NO_CONDITIONS.search(str(error)))


def _words(text: str) -> str:
    code, message = (
        re.search(r"<Code>([^<]*)</Code>", text),
        re.search(r"<Message>([^<]*)</Message>", text),
    )
    if code:
        return f"{code[1]}: {message[1]}" if message else code[1]
    return text.partition("\n")[0][:300]
