"""Which of a gateway's settings do not go together. What each means by itself is `settings`'."""

from collections.abc import Mapping, Sequence

from pointsman.config.listen_address import Address
from pointsman.config.setting_sources import Complaints, Given
from pointsman.config.wording import nearest

LISTENERS = ("listen.data", "listen.control", "listen.grpc")
"""Their keys; addresses come in this order."""


def default_route_warning(name: str, place: str, routes: set[str]) -> tuple[str, ...]:
    """At most one: where a default route is none of the routes of its file."""
    if not name or not routes or name in routes:
        return ()
    near = nearest(name, routes)
    made = f"make it with 'pointsman route create {name}', unless it is stored or a registered model's alias"
    next_step = f"did you mean {near}?" if near else made
    return (f"{place}: default_route {name} is no route of this file; {next_step}",)


class SettingChecks:
    """`complaints` and `warnings` get what is found."""

    def __init__(self, given: Mapping[str, Given], complaints: Complaints, warnings: list[str]) -> None:
        self._given = given
        self._complaints = complaints
        self._warnings = warnings

    def check(self, addresses: Sequence[Address], *, data_auth: str, grpc_auth: str) -> None:
        """Look at all of them."""
        self._check_listeners(addresses)
        self._check_reach(addresses, data_auth, grpc_auth)
        self._check_readers()

    def _check_listeners(self, addresses: Sequence[Address]) -> None:
        listeners = dict(zip(LISTENERS, addresses, strict=True))
        for i, (name, address) in enumerate(listeners.items()):
            for other in LISTENERS[:i]:
                if address.overlaps(listeners[other]):
                    given = self._given.get(name) or self._given[other]
                    reason = f"{other} and {name} are both on port {address.port}"
                    self._complaints.about(given, reason, "give each listener a port of its own")

    def _check_reach(self, addresses: Sequence[Address], data_auth: str, grpc_auth: str) -> None:
        data, _, grpc = addresses
        has_tls = "tls.cert" in self._given and "tls.key" in self._given
        for name, address in zip(LISTENERS, addresses, strict=True):
            if not address.is_loopback and not has_tls:
                reason = f"{name} {address} can be reached from other machines, and there is no TLS"
                self._complaints.about(self._given[name], reason, "set tls.cert and tls.key, or listen on 127.0.0.1")
        if data_auth == "none" and not data.is_loopback and "tls.client_ca" not in self._given:
            reason = f"auth.data is none while listen.data {data} can be reached from other machines"
            given = self._given["auth.data"]
            self._warnings.append(
                f"{given.source}: {reason}: all may use your providers; use keys, or set tls.client_ca"
            )
        if grpc_auth != "none":
            return
        given = self._given["auth.grpc"]
        if grpc.is_loopback:
            reason = "auth.grpc is none: everybody on this machine may read and change what the gateway keeps"
            self._warnings.append(f"{given.source}: {reason}; use token where the clients can send one")
        else:
            reason = f"auth.grpc is none while listen.grpc {grpc} can be reached from other machines"
            self._complaints.about(given, reason, "set auth.grpc to token, or listen.grpc to 127.0.0.1")

    def _check_readers(self) -> None:
        for key in ("database_url", "nats_url"):
            given = self._given.get(key)
            if given is not None and given.public and "@" in given.text:
                reason = f"every user of this machine can read this file, and {key} may hold a password"
                self._warnings.append(f"{given.source}: {reason}; chmod 600 it")
