"""What is wrong with a file, for a person who is about to mend it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to mend."""

    line: int
    """From 1; 0 when it is about the file as a whole."""
    reason: str
    next_step: str


class RouteFileError(Exception):
    """A route file cannot be used. Its text holds a line per problem: `FILE:LINE: reason; next step`."""

    def __init__(self, path: str, problems: tuple[Problem, ...]) -> None:
        self.path = path
        self.problems = problems
        super().__init__("\n".join(_line(path, problem) for problem in problems))


def _line(path: str, problem: Problem) -> str:
    place = f"{path}:{problem.line}" if problem.line else path
    return f"{place}: {problem.reason}; {problem.next_step}"
