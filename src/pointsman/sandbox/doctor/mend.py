"""What would make a client use the door and trust it. Pure.

A mend is what a person types. Most can be tried here as well, so that nothing is advised that was not seen to work.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from pointsman.sandbox.doctor.client import Bypass, Client, Kind, Situation, missing_key, wanted_base_url
from pointsman.sandbox.doctor.reading import Outcome, Reading
from pointsman.sandbox.environment import NO_PROXY, PLACEHOLDER_KEY

START_AGAIN = (
    "start the sandbox again: every 'pointsman sandbox run' makes a new certificate authority and a proxy, and so does "
    "'pointsman sandbox proxy', in its --ca-dir"
)
NAME_THE_AUTHORITY = (
    "name the files in the --ca-dir of 'pointsman sandbox proxy', or start the sandbox again: every 'pointsman sandbox "
    "run' sets these variables"
)
NODE_TOO_OLD = "use Node 24 or newer (or 22.21): older ones read no proxy variables"


@dataclass(frozen=True, slots=True)
class Mend:
    """One change."""

    text: str
    """What to type, or what to do when it cannot be typed."""
    sets: tuple[tuple[str, str], ...] = ()
    unsets: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """For the client's command line."""
    prepare: tuple[str, ...] = ()
    """A command to run before, in the directory of the trial."""
    is_about_trust: bool = False
    """Whether it concerns the certificate authority, not the way to the door."""

    @property
    def can_be_tried(self) -> bool:
        """Whether it is a change of this client's variables or options."""
        return bool(self.sets or self.unsets or self.arguments)

    def apply(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment after it."""
        kept = {name: value for name, value in environ.items() if name not in self.unsets}
        return {**kept, **dict(self.sets)}


def export(*pairs: tuple[str, str]) -> Mend:
    """Set variables."""
    return Mend("export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in pairs), sets=pairs)


def unset(*names: str) -> Mend:
    """Remove variables."""
    return Mend("unset " + " ".join(names), unsets=names)


def mend_for(client: Client, reading: Reading, situation: Situation, environ: Mapping[str, str]) -> Mend | None:
    """The next change, or None when nothing is known to help. `environ` includes what was changed already."""
    if name := missing_key(client, environ):
        return export((name, PLACEHOLDER_KEY))
    match reading.outcome:
        case Outcome.ANSWERED | Outcome.HOSTS_FILE:
            return None
        case Outcome.EXPIRED:
            return Mend(START_AGAIN)
        case Outcome.UNTRUSTED | Outcome.CA_FILE:
            return _trust(client, situation, environ) if situation.certificate_valid else Mend(START_AGAIN)
        case Outcome.BYPASSED | Outcome.STRANGER:
            return _lead(client, reading, situation, environ)
        case Outcome.PROXY_DOWN | Outcome.CONNECT_REFUSED:
            return _proxy(situation, environ)
        case Outcome.TIMED_OUT:
            return Mend("see what the door's log says of this request; 'pointsman doctor --timeout 60' waits longer")
        case Outcome.FAILED:
            return None


# Trust

_BUNDLE_VARIABLE = {
    Kind.CURL: "CURL_CA_BUNDLE",
    Kind.GIT: "GIT_SSL_CAINFO",
    Kind.OPENSSL: "SSL_CERT_FILE",
    Kind.PYTHON: "SSL_CERT_FILE",
}
_AUTHORITY_VARIABLE = {Kind.NODE: "NODE_EXTRA_CA_CERTS", Kind.BUN: "NODE_EXTRA_CA_CERTS", Kind.DENO: "DENO_CERT"}
TRUST_STORE = "pointsman.p12"


def _trust(client: Client, situation: Situation, environ: Mapping[str, str]) -> Mend | None:
    mend = _way_to_trust(client, situation, environ)
    return replace(mend, is_about_trust=True) if mend is not None else None


def _way_to_trust(client: Client, situation: Situation, environ: Mapping[str, str]) -> Mend | None:
    bundle = situation.bundle or situation.authority
    if not bundle:
        return Mend(f"the door's certificate authority is nowhere to be found; {NAME_THE_AUTHORITY}")
    if client.kind is Kind.WGET:
        option = f"--ca-certificate={bundle}"
        return Mend(f"wget {shlex.quote(option)} …", arguments=(option,))
    if client.kind is Kind.JAVA:
        return _java_trust(situation.authority or bundle, environ)
    if client.kind is Kind.CURL and environ.get("SSL_CERT_FILE") == bundle and "CURL_CA_BUNDLE" not in environ:
        return unset("SSL_CERT_DIR")  # curl looks into no file where that is set
    if client.library == "requests":
        return _unless_set(environ, "REQUESTS_CA_BUNDLE", bundle)
    if client.kind in _AUTHORITY_VARIABLE:
        return _unless_set(environ, _AUTHORITY_VARIABLE[client.kind], situation.authority or bundle)
    return _unless_set(environ, _BUNDLE_VARIABLE[client.kind], bundle)


def _unless_set(environ: Mapping[str, str], name: str, value: str) -> Mend | None:
    """What is already as it should be is no mend."""
    return None if environ.get(name) == value else export((name, value))


def _java_trust(authority: str, environ: Mapping[str, str]) -> Mend | None:
    options = environ.get("JAVA_TOOL_OPTIONS", "")
    if "javax.net.ssl.trustStore=" in options:
        return None
    entry = ("-importcert", "-noprompt", "-alias", "pointsman", "-file", authority)
    command = ("keytool", *entry, "-keystore", TRUST_STORE, "-storetype", "PKCS12", "-storepass", "changeit")
    told = f"{options} -Djavax.net.ssl.trustStorePassword=changeit -Djavax.net.ssl.trustStore=".strip()
    text = f'{shlex.join(command)} && export JAVA_TOOL_OPTIONS="{told}$PWD/{TRUST_STORE}"'
    return Mend(text, sets=(("JAVA_TOOL_OPTIONS", told + TRUST_STORE),), prepare=command)


# Way


def _lead(client: Client, reading: Reading, situation: Situation, environ: Mapping[str, str]) -> Mend | None:
    match reading.bypass:
        case Bypass.BASE_URL:
            wanted = wanted_base_url(client)
            return export(wanted) if wanted else None
        case Bypass.EXEMPT:
            names = ("no_proxy",) if client.kind is Kind.WGET else ("NO_PROXY", "no_proxy")
            return export(*((name, NO_PROXY) for name in names))
        case Bypass.NOT_SWITCHED_ON if client.library == "aiohttp":
            return Mend("aiohttp.ClientSession(trust_env=True), in the program", arguments=("trust_env",))
        case Bypass.NOT_SWITCHED_ON:
            return export(("NODE_USE_ENV_PROXY", "1"))
        case Bypass.NO_VARIABLES if client.kind is Kind.JAVA:
            proxy = urlsplit(situation.proxy_url)
            options = f"-Dhttps.proxyHost={proxy.hostname} -Dhttps.proxyPort={proxy.port}"
            return export(("JAVA_TOOL_OPTIONS", f"{environ.get('JAVA_TOOL_OPTIONS', '')} {options}".strip()))
        case Bypass.NO_VARIABLES:
            return Mend(NODE_TOO_OLD)
        case Bypass.UNSET | Bypass.OTHER | None:
            return _proxy(situation, environ)


def _proxy(situation: Situation, environ: Mapping[str, str]) -> Mend:
    names = ("HTTPS_PROXY", "https_proxy")
    if all(environ.get(name) == situation.proxy_url for name in names):
        return Mend(START_AGAIN)
    return export(*((name, situation.proxy_url) for name in names))


def effective(mends: Sequence[Mend]) -> list[Mend]:
    """Without those whose variables a later one sets again."""
    found: list[Mend] = []
    for mend in mends:
        names = {name for name, _ in mend.sets}
        found = [each for each in found if not each.sets or not {name for name, _ in each.sets} <= names]
        found.append(mend)
    return found


def lasting(text: str, situation: Situation, port: int) -> str:
    """A mend's text for any sandbox: its own certificates by the variables that name them, the proxy at `port`."""
    for path, name in ((situation.bundle, "SSL_CERT_FILE"), (situation.authority, "NODE_EXTRA_CA_CERTS")):
        if path and situation.environ.get(name) == path:
            text = text.replace(path, f"${name}")
    own = urlsplit(situation.proxy_url)
    text = text.replace(f"{own.hostname}:{own.port}", f"{own.hostname}:{port}")
    return text.replace(f"proxyPort={own.port}", f"proxyPort={port}")
