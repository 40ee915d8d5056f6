"""The container's recipe and the compose files: linted, valid against their schema, and without what must not be there.

That the gateway starts as they start it is tested in tests/e2e/test_deploy.py.
"""

import fnmatch
import importlib.util
import json
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pointsman.bus.interface import MAX_PAYLOAD_BYTES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RECIPE = (DEPLOY / "Containerfile").read_text()
COMPOSE = sorted(DEPLOY.glob("compose*.yaml"))
RUNNERS = DEPLOY / "compose.apw-runner.yaml"
ONE_PROCESS = [path for path in COMPOSE if path != RUNNERS]


def instructions(text: str) -> list[tuple[str, str]]:
    """Word and arguments of each, comments left out, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(" ", 1)[0].upper(), line.split(" ", 1)[1]) for line in joined.splitlines()]


def last_stage() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word, arguments in instructions(RECIPE):
        if word == "FROM":
            found = {}
        found.setdefault(word, []).append(arguments)
    return found


def service(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())["services"]["gateway"]
    return found


def test_the_recipe_passes_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--no-color", DEPLOY / "Containerfile"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_its_bases_are_names_of_debian_slim_and_no_registry_is_named() -> None:
    bases = [arguments.split()[0] for word, arguments in instructions(RECIPE) if word == "FROM"]
    assert bases == ["debian:bookworm-slim"] * 2
    assert re.findall(r"https?://|index-url|trusted-host", RECIPE) == []


def test_every_package_has_to_have_its_locked_hash() -> None:
    runs = " && ".join(arguments for word, arguments in instructions(RECIPE) if word == "RUN")
    installs = [each for each in runs.split("&&") if re.search(r"pip (install|wheel)", each)]
    assert len(installs) == 4
    assert [each for each in installs if "--require-hashes" not in each and "--no-deps" not in each] == []
    assert [each for each in installs if "--no-deps" in each and "--no-index" not in each] == [
        each for each in installs if "pip wheel" in each and "--no-build-isolation" in each
    ]


def test_it_runs_as_nobody_special_and_hears_the_signal_itself() -> None:
    stage = last_stage()
    assert stage["USER"] == ["10001:10001"]
    for word in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(stage[word][0]), list)
    assert (stage["STOPSIGNAL"], stage["EXPOSE"]) == (["SIGTERM"], ["8780 8781 8782"])
    assert stage["VOLUME"] == ['["/var/lib/pointsman"]']
    assert "health.py" in stage["HEALTHCHECK"][0]
    assert "curl" not in RECIPE


def test_the_libraries_that_the_engine_is_linked_with_are_installed() -> None:
    spec = importlib.util.find_spec("xllamacpp")
    assert spec is not None
    libraries = [str(each) for place in spec.submodule_search_locations or () for each in Path(place).glob("*.so")]
    needed = subprocess.run(["ldd", *libraries], capture_output=True, text=True, timeout=30, check=True).stdout
    found = set(re.findall(r"^\s(lib\S+?)\.so\S* => /(?:usr/)?lib", needed, re.MULTILINE))
    in_slim = {"libc", "libgcc_s", "libm", "libpthread", "libdl", "librt"}
    assert {f"{name}{number}" for name, number in (("libgomp", 1), ("libstdc++", 6))} <= set(
        last_stage()["RUN"][0].split()
    )
    assert found - in_slim <= {"libgomp", "libstdc++"}


def test_nothing_secret_can_get_into_a_layer() -> None:
    assert [arguments for word, arguments in instructions(RECIPE) if word in ("ARG", "ADD")] == []
    copied = [
        source
        for word, arguments in instructions(RECIPE)
        if word == "COPY" and "--from" not in arguments
        for source in arguments.split()[:-1]
    ]
    assert set(copied) == {
        *("requirements/runtime.txt", "requirements/build.txt", "pyproject.toml", "README.md", "LICENSE", "src"),
        "deploy/health.py",
    }
    assert [source for source in copied if not (ROOT / source).exists()] == []
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = [rule[1:] for rule in rules if rule.startswith("!")]
    assert [source for source in copied if not any(fnmatch.fnmatch(source, rule + "*") for rule in sent)] == []
    assert [rule for rule in sent if not any(source.startswith(rule) for source in copied)] == []


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_a_compose_file_fits_the_schema(path: Path) -> None:
    schema = resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(schema.read_text()))


@pytest.mark.parametrize("path", ONE_PROCESS, ids=lambda path: path.name)
def test_every_secret_of_a_compose_file_is_a_file_and_is_given_to_the_gateway(path: Path) -> None:
    whole = yaml.safe_load(path.read_text())
    assert whole["secrets"] == {name: {"file": f"./secrets/{name}"} for name in service(path)["secrets"]}
    providers = yaml.safe_load((DEPLOY / "pointsman.yaml").read_text())["providers"]
    keys = {f"{each['name']}_api_key" for each in providers if each["type"] != "local_gguf"}
    assert keys == {name for name in whole["secrets"] if name.endswith("_api_key")}


@pytest.mark.parametrize("path", ONE_PROCESS, ids=lambda path: path.name)
def test_the_container_may_do_little_and_is_not_on_the_network(path: Path) -> None:
    found = service(path)
    assert (found["cap_drop"], found["security_opt"], found["read_only"]) == (["ALL"], ["no-new-privileges:true"], True)
    assert [mount["target"] for mount in found["volumes"] if not mount.get("read_only")] == ["/var/lib/pointsman"]
    assert [port for port in found.get("ports", []) if not port.startswith("127.0.0.1:")] == []
    assert ("ports" in found) != (found.get("network_mode") == "host")


def test_processes_of_one_gateway_may_do_little_and_only_what_clients_need_is_published() -> None:
    services: dict[str, Any] = yaml.safe_load(RUNNERS.read_text())["services"]
    ours = {name: each for name, each in services.items() if each["image"] == "pointsman"}
    assert list(ours) == ["api", "data-1", "data-2"]
    for found in ours.values():
        assert (found["cap_drop"], found["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert found["read_only"]
        assert [mount["target"] for mount in found["volumes"]] == ["/var/lib/pointsman"]
    published = [port for each in services.values() for port in each.get("ports", [])]
    assert published == ["127.0.0.1:54000:54000", "127.0.0.1:54001:54001", "127.0.0.1:54002:54001"]


def test_the_brokers_file_allows_as_much_as_the_gateway_demands() -> None:
    sizes = re.findall(r"^max_payload: (\d+)MB", (DEPLOY / "nats.conf").read_text(), re.MULTILINE)
    assert [int(each) * 1024 * 1024 for each in sizes] == [MAX_PAYLOAD_BYTES]
