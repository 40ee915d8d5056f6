"""What is wrong with a file, for a person who is about to mend it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to mend."""

    line: int
    """From 1; 0 when it is about the file as a whole."""
    reason: str
    next_step: str
    field: str = ""
    """The key of the route it is about, where there is one."""

    def describe(self, path: str) -> str:
        """`FILE:LINE: reason; next step`, without the line where there is none."""
        place = f"{path}:{self.line}" if self.line else path
        return f"{place}: {self.reason}; {self.next_step}"


class RouteFileError(Exception):
    """A route file cannot be used. Its text holds a line per problem: `FILE:LINE: reason; next step`."""

    def __init__(self, path: str, problems: tuple[Problem, ...]) -> None:
        self.path = path
        self.problems = problems
        super().__init__("\n".join(problem.describe(path) for problem in problems))


class SettingsError(Exception):
    """The gateway's settings cannot be used. Its text holds a line per problem: `PLACE: reason; next step`.

    A place is `FILE:LINE`, an environment variable or an option.
    """

    def __init__(self, problems: tuple[tuple[str, Problem], ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(problem.describe(place) for place, problem in problems))
