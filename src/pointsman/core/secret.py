"""A value that must not be shown."""

_SHORTEST = 6


class Secret:
    """Holds a credential; every way of printing it gives a mask.

    `reveal()` is called where bytes leave for an upstream, a store or a wire, and nowhere else.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def appears_in(self, text: str) -> bool:
        """Whether a text gives the value away. Values under 6 characters, such as `none`, give nothing away."""
        return len(self._value) >= _SHORTEST and self._value in text

    def fits_a_header(self, longest: int) -> bool:
        """Whether it is visible ASCII without spaces, of at most so many characters: a line break starts a header."""
        return len(self._value) <= longest and all("!" <= character <= "~" for character in self._value)

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str:
        raise TypeError("a Secret is not serialised")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))
