"""What commands over chained records share: heads as options, verification part by part, findings, and exports."""

from collections.abc import Callable
from typing import IO, Any

import click

from pointsman.cli.call import Access, Gateway
from pointsman.cli.show import moment, show, show_lines, told
from pointsman.core.chain import NO_HEAD, ChainHead, parse_head
from pointsman.core.chain_check import Verification

PAGE = 500
"""Records that one call is asked for."""
MOST_LISTED = 100_000
_VERIFY_SECONDS = 60.0
"""One call verifies what a gateway does in about a second."""

limit_option = click.option(
    "--limit", type=click.IntRange(1, MOST_LISTED), default=50, show_default=True, help="The newest so many."
)


def head_given(_: click.Context, __: click.Parameter, value: str | None) -> ChainHead | None:
    """An option's callback."""
    try:
        return parse_head(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


head_option = click.option(
    "--head",
    callback=head_given,
    metavar="NUMBER:DIGEST",
    help="What an earlier verification told: it must be there.",
)


def verified(access: Access, kept: ChainHead | None, call_of: Callable[[Gateway], Any], what: str) -> Verification:
    """Call a gateway's verification until the chain's end; `what` is verified. Raises CallFailed."""
    from pointsman.rpc.gen.hash_chain_pb2 import VerifyChainRequest
    from pointsman.rpc.hash_chain import head_message, verification_of

    problems: list[str] = []
    count, checked, last = 0, 0, NO_HEAD
    with access.open() as gateway:
        while True:
            head = None if kept is None else head_message(kept)
            request = VerifyChainRequest(after=head_message(last), head=head)
            waiting_for = f"{what} to be verified ({checked} so far)"
            answer = gateway.call(call_of(gateway), request, seconds=_VERIFY_SECONDS, waiting_for=waiting_for)
            part = verification_of(answer)
            problems += part.problems
            count, checked, last = count + part.problem_count, checked + part.checked, part.head
            if part.is_complete:
                return Verification(problems, count, checked, last, True)


def show_verification(output: str, found: Verification, whole: str, altered: str) -> None:
    """Print that the chain is `whole`, or its problems; then raises ClickException, for it is `altered`."""
    document = {
        "whole": not found.problem_count,
        "checked": found.checked,
        "head": str(found.head),
        "problem_count": found.problem_count,
        "problems": found.problems,
    }
    if not found.problem_count:
        kept = [f"Head: {found.head}", "Keep the head elsewhere; give it as --head."] if found.checked else []
        show(output, [whole, *kept], document)
        return
    more = found.problem_count - len(found.problems)
    lines = [*found.problems, *([f"and {more} more"] if more > 0 else [])]
    show(output, [told(line) for line in lines], document)
    raise click.ClickException(f"{altered}; keep a copy of the database, and compare with an export or a backup")


def export_line(file: IO[str] | None, line: str, path: str | None) -> None:
    """To a new file, or to standard output where there is none. Raises ClickException."""
    if file is None:
        show_lines([line])
        return
    try:
        file.write(line + "\n")
    except OSError as error:
        raise click.ClickException(f"--out {told(str(path))}: {(error.strerror or 'failed').lower()}") from None


def time_told(at: float) -> str:
    """When a record was made; it may be one that somebody altered, and then it may be no time."""
    try:
        return moment(round(at * 1000)) or "-"
    except (ValueError, OverflowError, OSError):
        return "-"
