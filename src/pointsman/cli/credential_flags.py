"""What `--credential`, `--config` and `--from-existing` say, as maps. No message repeats what may be a key.

Pure: environment and standard input are handed in.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from pointsman.config.wording import shown, shown_variable
from pointsman.core.profiles import profile_for
from pointsman.core.provider import LONGEST_VALUE, names_a_secret
from pointsman.core.secret import Secret

_STANDARD_INPUT = "-"
_NOBODYS = "BASE_URL"
"""A variable of this name may be about anything."""
_USER_INFO = re.compile(r"://[^/?#]*@")


class WrongFlag(Exception):
    """A flag that cannot be meant, whatever there is around it. The text ends in what to do."""


class NotThere(Exception):
    """A flag that is right, and names what is not there. The text ends in what to do."""


def read_credentials(
    flags: Iterable[str], environ: Mapping[str, str], read_input: Callable[[str], str], *, may_delete: bool
) -> dict[str, Secret]:
    """`KEY=VALUE`, `KEY` (from the environment) or `KEY=-` (from standard input, by `read_input(KEY)`), once per key.

    `may_delete` admits `KEY=`. Raises WrongFlag and NotThere.
    """
    found: dict[str, Secret] = {}
    asked = ""
    for flag in flags:
        key, separator, value = flag.partition("=")
        key = key.strip()
        if not key:
            raise WrongFlag("--credential has no key; write --credential KEY, KEY=VALUE or KEY=-")
        if key in found:
            raise WrongFlag(f"--credential{_name(key)} is given twice; give each key once")
        if not separator:
            value = _from_environment(key, environ)
        elif value == _STANDARD_INPUT:
            if asked:
                raise WrongFlag("two credentials are to come from standard input; give one of them by its variable")
            asked = key
            value = ""  # read when all the rest is known to be right
        elif not value and not may_delete:
            raise WrongFlag(f"--credential{_name(key)}= has no value; write KEY=VALUE, or KEY to read the variable")
        found[key] = Secret(value)
    if asked:
        found[asked] = Secret(_from_input(asked, read_input(asked)))
    return found


def _from_environment(key: str, environ: Mapping[str, str]) -> str:
    value = environ.get(key)
    named = shown_variable(key)
    if not named and value is None:
        # It may be a key that was pasted where its name belongs.
        raise WrongFlag("--credential without '=' names a variable, and this is none; write KEY=VALUE, or export KEY")
    if value is None:
        raise NotThere(f"--credential{named}: the variable is not set here; export it, or write KEY=VALUE")
    if not value.strip():
        raise NotThere(f"--credential{named}: the variable is empty here; export its value, or write KEY=VALUE")
    return value.strip()


def _from_input(key: str, text: str) -> str:
    value = text.strip()
    if not value:
        raise NotThere(f"--credential{_name(key)}=-: standard input was empty; pipe the value in")
    if len(value) > LONGEST_VALUE or len(value.splitlines()) > 1:
        raise NotThere(
            f"--credential{_name(key)}=-: standard input must hold the value alone, one line of at most "
            f"{LONGEST_VALUE} characters"
        )
    return value


def _name(key: str) -> str:
    return shown_variable(key) or shown(key)


def read_config(flags: Iterable[str], *, may_delete: bool) -> dict[str, str]:
    """`KEY=VALUE`, once per key; `may_delete` admits `KEY=`. Raises WrongFlag."""
    found: dict[str, str] = {}
    for flag in flags:
        key, separator, value = flag.partition("=")
        key = key.strip()
        if not key or not separator:
            raise WrongFlag("--config is not KEY=VALUE; for example --config OPENAI_BASE_URL=https://models.example/v1")
        if key in found:
            raise WrongFlag(f"--config{_name(key)} is given twice; give each key once")
        if value and names_a_secret(key):
            raise WrongFlag(f"--config{_name(key)} looks like a credential, and config is shown; use --credential")
        if _USER_INFO.search(value):
            raise WrongFlag(f"--config{_name(key)} has user info before '@', and config is shown; leave it out")
        if not value and not may_delete:
            raise WrongFlag(f"--config{_name(key)}= has no value; write KEY=VALUE")
        found[key] = value
    return found


def discover(provider_type: str, environ: Mapping[str, str]) -> dict[str, Secret]:
    """The credentials that the environment holds for a type. Raises NotThere, and WrongFlag."""
    names = _variables_of(provider_type)
    if not names:
        raise WrongFlag(f"--from-existing knows no variable of the type{shown(provider_type)}; use --credential KEY")
    found = {name: Secret(environ[name].strip()) for name in names if environ.get(name, "").strip()}
    if not found:
        raise NotThere(f"--from-existing found no {' or '.join(names)} here; export it, or use --credential")
    return found


def unused_base_url(provider_type: str, environ: Mapping[str, str], config: Mapping[str, str]) -> str:
    """A variable that points this type's clients elsewhere and that the record will not follow; empty for none."""
    profile = profile_for(provider_type)
    names = profile.base_url_config_keys if profile else ()
    if any(name in config for name in names):
        return ""
    return next((name for name in names if name != _NOBODYS and environ.get(name, "").strip()), "")


def _variables_of(provider_type: str) -> tuple[str, ...]:
    profile = profile_for(provider_type)
    return profile.credential_key_names if profile is not None else ()
