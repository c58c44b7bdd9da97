"""Keys for a path from Unity Catalog: its temporary path credentials (Databricks, `POST /api/2.0/unity-catalog/temporary-path-credentials`).

Whoever asks needs EXTERNAL USE LOCATION on the external location, and its metastore external access. The keys live for an hour or so.
"""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from geo.errors import RetryableError, UsageError
from geo.reasons import Reason
from geo.text import printable

_ANSWER_S = 10
_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def path_keys(workspace_url: str, token: str, location: str) -> dict[str, str]:
    """Keys that may read and write below a location on S3, as options of object_store. Raises UsageError where they are refused, RetryableError
    where nobody answers."""
    url = f"{workspace_url.rstrip('/')}/api/2.0/unity-catalog/temporary-path-credentials"
    asked = {"url": f"s3://{location.partition('://')[2]}", "operation": "PATH_READ_WRITE"}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    where = f"Unity Catalog at {workspace_url} gives no keys for {asked['url']}"
    try:
        with urlopen(Request(url, json.dumps(asked).encode(), headers), timeout=_ANSWER_S) as answer:  # noqa: S310  # of the configuration
            found = json.load(answer)["aws_temp_credentials"]
        return {option: str(found[name]) for option, name in _KEYS.items()}
    except HTTPError as error:
        raise (UsageError if error.code < 500 else RetryableError)(f"{where}: {error.code}{_said(error)}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RetryableError(f"{where}: {type(error).__name__}: {printable(str(error))}", code=Reason.KEYS_REFUSED) from None


def _said(error: HTTPError) -> str:
    try:
        said = json.loads(error.read())
        return f", {printable(str(said['error_code']))}: {printable(str(said['message']))}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
