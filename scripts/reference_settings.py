"""The page docs/reference/gateway-configuration.md: the gateway's settings, from the table of its keys."""

from pointsman.config.setting_keys import CLIENT_PREFIX, CLIENT_VARIABLES, KEYS, LATER
from pointsman.config.yaml_positions import LARGEST_TEXT
from pointsman.gateway.admin_token import SHORTEST

_HEAD = """# Gateway configuration

`pointsman gateway` takes each setting from three places; the first that gives it wins:

1. an option, such as `--listen-grpc 127.0.0.1:9000`;
2. an environment variable, such as `POINTSMAN_LISTEN__GRPC=127.0.0.1:9000`;
3. the file that `--config FILE` names. Without `--config` no file is read.

Without any of them it listens on loopback and keeps its data in the user's data directory. `pointsman gateway --check`
shows every value and where it comes from, and starts nothing; `-o json` for programs.

```yaml
listen:
  data: 127.0.0.1:8780
  control: 127.0.0.1:8781
  grpc: 127.0.0.1:8782
data_dir: /var/lib/pointsman
key_file: /var/lib/pointsman/credentials.key
auth:
  grpc: token
```

Settings are read once, at start. Everything that is wrong with them is told at once, a line each, with its place and
what to do; the gateway then exits with 1.

## Keys

"""
_RULES = """
Paths may be relative: in the file to its directory, elsewhere to the working directory. One that begins with `~` is
refused. A key without a value, and an empty variable, count as absent. An unknown key or variable is an error that
names the nearest one; keys that begin with `x-` are yours, for YAML anchors. The file has at most {largest} KiB.

Variables of other commands may be set beside them: {clients} and those that begin with `{prefix}`.

This version does not know {later} yet, and says so.

## Listeners

An address is an IP address and a port, `127.0.0.1:8780` or `'[::1]:8780'`; `localhost` is 127.0.0.1. Other names are
refused: nobody would know who may connect before they are looked up. Port 0 takes any free one; the line
`pointsman: ready data=HOST:PORT control=HOST:PORT grpc=HOST:PORT` on standard error tells which.

* A listener that is not on loopback needs `tls.cert` and `tls.key`, or the gateway does not start.
* With them **all three** listeners speak TLS 1.2 or 1.3, those on loopback too. With `tls.client_ca` all three ask
  for a client certificate.
* `auth.grpc: none` is refused unless `listen.grpc` is on loopback, and worth a warning there: every user of the machine
  can then use and replace the providers' keys.
* `0.0.0.0` means IPv4. `[::]` means IPv6 for data and control, both for gRPC.

The data listener serves `GET /health`: 200 `{{"status":"ok"}}`, or 503 `{{"status":"degraded"}}` when the database does
not answer.

## Files

* `admin.token` in `data_dir`: the admin token, made at first start with mode 0600. One of your own needs {shortest}
  visible ASCII characters or more, in one line. A file that other users own or may open is refused. Remove it, and the
  next start makes another.
* `key_file`: made at first start with mode 0600. Without it the credentials in the database cannot be read: keep a copy
  apart from the database's.
* `pointsman.db` in `data_dir`: the database, unless `database_url` names another.

`data_dir` is made with mode 0700; one that everybody may write to is refused. A password in `database_url` belongs into
the file (`chmod 600`) or the variable, since other users see a command line; no command and no error shows it again.
"""


def settings_page() -> str:
    """Every key with its variable, option and default, and the rules between them."""
    rows = ["| key | option | variable | default | |\n", "|---|---|---|---|---|\n"]
    for key in KEYS:
        default = f"`{key.default}`" if key.path.startswith("listen.") else key.default
        rows.append(f"| `{key.path}` | `{key.option}` | `{key.variable}` | {default} | {key.meaning} |\n")
    rules = _RULES.format(
        largest=LARGEST_TEXT // 1024,
        clients=", ".join(f"`{name}`" for name in sorted(CLIENT_VARIABLES)),
        prefix=CLIENT_PREFIX,
        later=", ".join(f"`{path}`" for path in LATER),
        shortest=SHORTEST,
    )
    return _HEAD + "".join(rows) + rules
