"""What the paths of chained records share: how a page is asked for, heads, and what a verification found."""

from typing import Annotated

from pydantic import BaseModel, Field

from pointsman.core.chain import ChainHead, parse_head
from pointsman.core.chain_check import MOST_TOLD, Verification
from pointsman.core.control_errors import InvalidRequest
from pointsman.gateway.hash_chain import LONGEST_PAGE
from pointsman.gateway.rest.requests import written_exactly

Limit = Annotated[
    int, Field(ge=1, le=LONGEST_PAGE, strict=True, description="Of one page; it may be shorter."), written_exactly(int)
]
After = Annotated[
    int,
    Field(
        ge=0,
        lt=10**11,
        strict=True,
        description="The next of the page before. Only greater numbers, or with newest_first smaller ones.",
    ),
    written_exactly(int),
]
NewestFirst = Annotated[bool, Field(strict=True, description="Against the order of numbers."), written_exactly(bool)]
Head = Annotated[
    str,
    Field(
        max_length=96,
        description="NUMBER:DIGEST, as a verification tells it.",
        json_schema_extra={"pattern": "^([0-9]{1,18}:[0-9a-f]{64})?$"},
    ),
]
Next = Annotated[int | None, Field(description="What after is for the next page; null: this is the last one.")]


class VerificationAnswer(BaseModel):
    """What was found from after on, as far as one request may look."""

    problems: list[str] = Field(description=f"Of more than {MOST_TOLD} the first, in the order of the chain.")
    problem_count: int
    checked: int = Field(description="Records that this request looked at.")
    head: str = Field(description="The last of them, NUMBER:DIGEST: to go on from, or to be kept elsewhere.")
    complete: bool = Field(description="Whether the chain ends there; otherwise ask again with it as after.")

    @classmethod
    def of(cls, found: Verification) -> "VerificationAnswer":
        """What was found."""
        return cls(
            problems=list(found.problems),
            problem_count=found.problem_count,
            checked=found.checked,
            head=str(found.head),
            complete=found.is_complete,
        )


def read_head(name: str, text: str) -> ChainHead | None:
    """A head; None for an empty text. Raises InvalidRequest, with the name of what it was given as."""
    if not text:
        return None
    try:
        return parse_head(text)
    except ValueError:
        raise InvalidRequest(f"{name} is NUMBER:DIGEST, with 64 hexadecimal digits") from None
