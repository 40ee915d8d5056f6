"""Where requests find the current bundle."""

from pointsman.core.candidate import Bundle


class RouteTable:
    """Holds the current bundle. A request takes it once and keeps it, so a swap neither waits nor cuts."""

    __slots__ = ("bundle",)

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
