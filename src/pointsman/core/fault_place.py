"""Where a bug of ours showed itself, fit for a log."""

from pathlib import PurePath


def fault_place(error: Exception) -> str:
    """What was raised and where. Its own text may hold what it was about: a body, a header, a key."""
    where = error.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    if where is None:
        return type(error).__name__
    code = where.tb_frame.f_code
    return f"{type(error).__name__} in {code.co_qualname}, {PurePath(code.co_filename).name} line {where.tb_lineno}"
