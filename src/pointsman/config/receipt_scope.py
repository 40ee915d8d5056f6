"""Which requests get a receipt, as the setting says it. Pure."""

from pointsman.core.control_errors import InvalidRequest
from pointsman.core.provider import check_name
from pointsman.core.receipt import NO_RECEIPTS, ReceiptScope


def read_receipt_scope(text: str) -> ReceiptScope:
    """`none`, `all`, or names of routes between commas. Raises ValueError with a reason that repeats nothing of it."""
    if text == "none":
        return NO_RECEIPTS
    if text == "all":
        return ReceiptScope(is_all=True)
    names = [each.strip() for each in text.split(",")]
    try:
        for name in names:
            check_name(name)
    except InvalidRequest:
        raise ValueError("holds what is no name of a route") from None
    if {"none", "all"} & set(names):
        raise ValueError("holds none or all beside names of routes")
    return ReceiptScope(routes=frozenset(names))
