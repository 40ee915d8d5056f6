"""How each client is made to ask the door: a command line, and what belongs around it. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pointsman.core.candidate import INFERENCE_LOCAL
from pointsman.sandbox.doctor.client import Client, Kind, Situation

MODELS_URL = f"https://{INFERENCE_LOCAL}/v1/models"
GIT_URL = f"https://{INFERENCE_LOCAL}/pointsman-doctor"
"""There is no repository behind the door: its refusal shows that git reached it and believed it."""

_RAW_REQUEST = f"GET /v1/models HTTP/1.1\r\nHost: {INFERENCE_LOCAL}\r\nConnection: close\r\n\r\n"
_MARK = "x-pointsman-request-id"

# Each script prints `status N` and the door's mark, or the whole chain of what went wrong.
PYTHON_SCRIPT = f"""
import sys
library, options = sys.argv[1], sys.argv[2:]
url, mark = {MODELS_URL!r}, {_MARK!r}
def say(status, headers):
    print("status", status)
    print(mark + ":", headers.get(mark) or "")
def ask():
    if library == "urllib":
        import urllib.request, urllib.error
        try:
            with urllib.request.urlopen(url) as answer:
                say(answer.status, answer.headers)
        except urllib.error.HTTPError as error:
            say(error.code, error.headers)
    elif library == "requests":
        import requests
        answer = requests.get(url, allow_redirects=False)
        say(answer.status_code, answer.headers)
    elif library in ("httpx", "httpx2"):
        answer = __import__(library).get(url, timeout=None)
        say(answer.status_code, answer.headers)
    elif library == "aiohttp":
        import asyncio, aiohttp
        async def get():
            async with aiohttp.ClientSession(trust_env="trust_env" in options) as session:
                async with session.get(url, allow_redirects=False) as answer:
                    say(answer.status, answer.headers)
        asyncio.run(get())
    else:
        sdk = __import__(library)
        client = (sdk.OpenAI if library == "openai" else sdk.Anthropic)(max_retries=0)
        try:
            answer = client.models.with_raw_response.list()
            say(answer.status_code, answer.headers)
        except sdk.APIStatusError as error:
            say(error.status_code, error.response.headers)
try:
    ask()
except BaseException as error:
    for _ in range(12):
        if error is None:
            break
        print(type(error).__name__, error)
        error = error.__cause__ or error.__context__
"""

_JAVASCRIPT = """
const library = %(library)s, where = %(where)s, url = %(url)s, mark = %(mark)s;
const say = (status, headers) => { console.log("status " + status); console.log(mark + ": " + (headers?.get?.(mark) ?? "")); };
const ask = async () => {
  if (!library) { const answer = await fetch(url, {redirect: "manual"}); return say(answer.status, answer.headers); }
  const sdk = require(where);
  const client = new (sdk.default ?? sdk)({maxRetries: 0});
  try { const answer = await client.models.list().asResponse(); say(answer.status, answer.headers); }
  catch (error) { if (!error.status) throw error; say(error.status, error.headers); }
};
ask().catch(error => {
  for (let i = 0; error && i < 12; i++, error = error.cause) console.log(`${error.name} ${error.code ?? ""} ${error.message}`);
});
"""  # noqa: E501

JAVA_SCRIPT = f"""
public class PointsmanDoctor {{
  public static void main(String[] arguments) {{
    try {{
      var url = java.net.URI.create("{MODELS_URL}").toURL();
      var connection = (java.net.HttpURLConnection) url.openConnection();
      System.out.println("status " + connection.getResponseCode());
      System.out.println("{_MARK}: " + connection.getHeaderField("{_MARK}"));
    }} catch (Throwable error) {{
      for (Throwable each = error; each != null; each = each.getCause()) System.out.println(each);
    }}
  }}
}}
"""
JAVA_FILE = "PointsmanDoctor.java"
"""Written into the directory that the command runs in: Java starts from a file."""


@dataclass(frozen=True, slots=True)
class Request:
    """A process to run."""

    argv: tuple[str, ...]
    stdin: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    """On top of the client's environment."""


def request_of(client: Client, situation: Situation, arguments: tuple[str, ...], seconds: float) -> Request:
    """The cheapest request of this client; `arguments` are those of a mend, `seconds` what it may take."""
    path, limit = client.path, f"{seconds:g}"
    match client.kind:
        case Kind.CURL:
            argv = ("-sS", "-o", "/dev/null", "-D", "-", "--max-time", limit, *arguments, MODELS_URL)
            return Request((path, *argv))
        case Kind.WGET:
            argv = ("-S", "-O", "/dev/null", "-T", limit, "-t", "1", "--max-redirect=0", *arguments, MODELS_URL)
            return Request((path, *argv))
        case Kind.GIT:
            quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_CURL_VERBOSE": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
            return Request((path, *arguments, "ls-remote", GIT_URL), environ=quiet)
        case Kind.OPENSSL:
            proxy = urlsplit(situation.proxy_url).netloc
            argv = ("-connect", f"{INFERENCE_LOCAL}:443", "-servername", INFERENCE_LOCAL, "-verify_return_error")
            return Request((path, "s_client", "-proxy", proxy, *argv, *arguments, "-quiet"), stdin=_RAW_REQUEST)
        case Kind.PYTHON:
            return Request((path, "-c", PYTHON_SCRIPT, client.library, *arguments))
        case Kind.JAVA:
            return Request((path, "-XX:TieredStopAtLevel=1", JAVA_FILE))
        case Kind.DENO:
            return Request((path, "eval", _javascript(client)), environ={"NO_COLOR": "1"})
        case Kind.NODE | Kind.BUN:
            return Request((path, "-e", _javascript(client)))


def _javascript(client: Client) -> str:
    values = {
        "library": "" if client.library == "fetch" else client.library,
        "where": client.location,
        "url": MODELS_URL,
        "mark": _MARK,
    }
    return _JAVASCRIPT % {name: json.dumps(value) for name, value in values.items()}
