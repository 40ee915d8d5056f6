"""What Schemathesis does not send, loaded by it in a Python environment of its own (`tests.fuzz.api`).

Nothing that makes a gateway call providers elsewhere, and nothing that looks like a credential in a wrong place, which
is refused by a rule that no schema can say.
"""

import json
import re
from typing import Any

import schemathesis

_LIKE_A_CREDENTIAL = re.compile(r"[A-Za-z0-9]{20,}")


def map_body(context: Any, body: Any) -> Any:
    """A body is as right, or as wrong, as it was."""
    operation = getattr(context, "operation", None)
    verifies = operation is not None and "/routes/" in operation.path and operation.method.upper() in ("PUT", "PATCH")
    if verifies and isinstance(body, dict) and body.get("verify", True) is True:
        return {**body, "verify": False}
    return body


def filter_case(context: Any, case: Any) -> bool:
    """Whether it may be sent."""
    shown = json.dumps([case.path_parameters, case.body], default=str)
    return _LIKE_A_CREDENTIAL.search(shown) is None


for each in (map_body, filter_case):
    schemathesis.hook(each)
