"""The page docs/reference/gateway-configuration.md: the gateway's settings, from the table of its keys."""

from pointsman.config.chain_entry import STRATEGIES
from pointsman.config.provider_entry import TYPES
from pointsman.config.setting_keys import CLIENT_PREFIX, CLIENT_VARIABLES, KEYS
from pointsman.config.yaml_positions import LARGEST_TEXT
from pointsman.core.attempts import ErrorCategory
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

Everything that is wrong with them is told at once, a line each, with its place and
what to do; the gateway then exits with 1.

## Keys

"""
_RULES = """
Paths may be relative: in the file to its directory, elsewhere to the working directory. One that begins with `~` is
refused. A key without a value, and an empty variable, count as absent. An unknown key or variable is an error that
names the nearest one; keys that begin with `x-` are yours, for YAML anchors. The file has at most {largest} KiB.

Variables of other commands may be set beside them: {clients} and those that begin with `{prefix}`.

## Providers and chains

The file may define providers, and routes that are chains of them:

```yaml
secrets_dir: /run/secrets
default_route: fast
providers:
  - name: groq
    type: openai_compatible
    base_url: https://groq.example/openai/v1
    model: llama
    daily_request_limit: 14400
    requests_per_minute: 30
    reset_timezone: UTC
    error_code_path: error.code
    error_mappings:
      - {{http_status: 429, error_code: quota_exceeded, category: rate_limit}}
  - {{name: spare, type: openai, model: small, daily_request_limit: 1000}}
  - {{name: nearby, type: openai_compatible, base_url: 'http://127.0.0.1:11434/v1', model: tiny, api_key: none}}
routes:
  - name: fast
    kind: chain
    candidates: [{{provider: groq}}, {{provider: spare, model: smaller}}]
    strategy: least_used
    fallback: nearby
    request_timeout: 300
```

| key of a provider | |
|---|---|
| `name` | Letters, digits, `.`, `_` and `-`. Unique, whatever the case. |
| `type` | {types}. |
| `base_url` | `https://host/v1`. `openai_compatible` needs one; a path that names a version is kept as it is. |
| `model` | What the provider calls it. A candidate may name another. |
| `model_path` | Of `local_gguf`: the model's file. It must exist, unless the gateway starts with `--allow-degraded`. |
| `daily_request_limit`, `requests_per_minute` | Whole numbers; 0, the default, is no limit. |
| `reset_timezone` | An IANA name; a day begins at midnight there. Default UTC. |
| `error_code_path` | Where an error's body holds its code; default `error.code`. |
| `error_mappings` | What a status, with or without a code, means: `category` is one of {categories}. |
| `api_key` | `none`, for a server that wants no key. Nothing else: keys are in files. |

A provider's key is in the file `PROVIDER_api_key` of `secrets_dir`, or in the one that the environment variable
`PROVIDER_API_KEY_FILE` names (in capitals, `_` for all that is no letter or digit). It is read for every attempt, so
that a new key is used at once: replace the file by `mv`. Space and line breaks around the key do not count. A file that
is missing, empty, longer than 8 KiB or has several lines is as good as a refused key; so is a pipe, a device, a file
that its group or everybody may write to, and a link that leads out of its directory. A server in clear text
(`http://`) whose file is not there when the configuration is read is asked without a key, with a warning.

| key of a route | |
|---|---|
| `name` | What clients give as their model. `inference.local` and `sandbox-system` are reserved. |
| `kind` | `chain`, the default. |
| `candidates` | `{{provider: NAME}}`, `{{provider: NAME, model: MODEL}}` or `NAME`, of this file. Never a runner. |
| `strategy` | {strategies}. Another word is a warning, and in_order. |
| `fallback` | The provider that is asked when all others have failed. Without one there is a warning. |
| `request_timeout` | Seconds until the first byte of an answer, all attempts together; default 300. |

A name that the file defines and the database has too is an error, at the start and when the file is read again.

## What is looked at when the gateway starts

Besides the texts themselves: every `model_path` must be a GGUF file, and every server that is a `fallback` must answer
one `GET` of its base URL within 5 s, with any status; no key is sent. Otherwise the gateway does not start. With
`--allow-degraded` both are warnings, and a request that comes to such a provider treats it as one that has failed.

## Reading the file again

The gateway reads its file again on SIGHUP, and about two seconds after the file has changed, with the options and
variables that it was started with. No request is dropped; one that has begun ends as it began, and counters, strategies
and kept connections stay.

* `providers`, `routes`, `default_route` and `secrets_dir` take effect at once. A line on standard error says what has
  changed.
* Other settings take effect at the next start; a line names each.
* A file that is wrong changes nothing, and every problem is told. So does one that defines a stored name, or, without
  `--allow-degraded`, a new or changed `fallback` that does not answer.

See [how to change the configuration](../howto/change-the-configuration.md).

## InferRouter's appsettings.json

`--config FILE` whose name ends in `.json` is read as the configuration of InferRouter, unchanged: with or without its
`InferRouter` section, with comments and trailing commas, keys in any case. Other sections of an ASP.NET program are
left alone; an unknown key is a warning. It becomes one chain, `default`, which is the default route.
[Coming from InferRouter](../howto/from-inferrouter.md) says more.

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

The data listener serves the paths of OpenAI's and Anthropic's interfaces below `/v1`, and `GET /health`: 200
`{{"status":"ok"}}`, or 503 `{{"status":"degraded"}}` when the database does not answer.
[The data listener](data-listener.md) says who may call what there.

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
        shortest=SHORTEST,
        types=", ".join(f"`{each}`" for each in TYPES),
        categories=", ".join(f"`{each}`" for each in ErrorCategory),
        strategies=", ".join(f"`{each}`" for each in STRATEGIES),
    )
    return _HEAD + "".join(rows) + rules
