"""Route files on disk: reading them, the files they name, and warnings."""

import os
from pathlib import Path

import pytest
import trustme

from pointsman.config.problems import RouteFileError
from pointsman.config.routes_file import check_route_file, load_route_file
from pointsman.config.yaml_positions import LARGEST_TEXT
from pointsman.core.secret import Secret

CANARY = "sk-canary-52c0de"
GOOD = """\
routes:
  - endpoint: http://localhost:1234/v1
    model: m
    protocols: [openai_chat_completions]
    api_key_env: SOME_KEY
  - route: sandbox-system
    endpoint: mock://system
    model: s
    protocols: [openai_chat_completions]
"""
ENVIRON = {"SOME_KEY": CANARY}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "routes.yaml"


def write(file: Path, content: str | bytes, mode: int = 0o600) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(mode)
    return file


def refusal(path: str | Path) -> str:
    """The one line that a file is refused with, without its name."""
    with pytest.raises(RouteFileError) as caught:
        load_route_file(path, ENVIRON)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{os.fspath(path)}:")
    assert CANARY not in text
    return text.removeprefix(f"{os.fspath(path)}:")


def warnings(file: Path) -> tuple[str, ...]:
    found = load_route_file(file, ENVIRON).warnings
    assert CANARY not in "".join(found)
    return found


def test_load_from_file_valid_yaml_gives_a_bundle_with_the_system_route_apart(file: Path) -> None:
    loaded = load_route_file(write(file, GOOD), ENVIRON)
    assert [each.model for each in loaded.bundle.routes] == ["m"]
    assert [each.model for each in loaded.bundle.system_routes] == ["s"]
    assert loaded.bundle.routes[0].api_key == Secret(CANARY)
    assert loaded.warnings == ()
    assert CANARY not in repr(loaded)


def test_a_file_may_be_named_by_text_or_path_and_be_a_symbolic_link(file: Path, tmp_path: Path) -> None:
    write(file, GOOD)
    (tmp_path / "link").symlink_to(file)
    assert load_route_file(str(tmp_path / "link"), ENVIRON) == load_route_file(file, ENVIRON)


def test_the_variables_that_hold_keys_are_named_so_that_a_sandbox_can_leave_them_out(file: Path) -> None:
    more = GOOD.partition("routes:\n")[2].replace("SOME_KEY", "A_KEY")
    loaded = load_route_file(write(file, GOOD + more), {**ENVIRON, "A_KEY": "x", "OTHER_KEY": "y"})
    assert loaded.key_variables == ("A_KEY", "SOME_KEY")


def test_empty_routes_give_an_empty_bundle(file: Path) -> None:
    loaded = load_route_file(write(file, "routes: []\n"), {})
    assert loaded.bundle.routes == loaded.bundle.system_routes == ()


def test_load_from_file_nonexistent_path_is_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing.yaml") == " no such file; check the path"


def test_what_is_no_readable_file_is_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path) == " is a directory; name a file"
    assert refusal("/dev/null") == " is not a regular file; name a file"
    assert refusal("a\x00b") == " is not a path; check the path"
    assert "name too long" in refusal("a" * 5000)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in refusal(tmp_path / "loop")
    assert "cannot be read" in refusal("/proc/self/mem")  # a regular file whose first byte is an I/O error


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == " is not a regular file; name a file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_one_line(file: Path) -> None:
    assert "permission denied" in refusal(write(file, GOOD, 0o000))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (GOOD.encode("utf-16"), " is UTF-16 text; save it as UTF-8"),
        (b"routes:\n  # caf\xe9\n", "2: is not UTF-8 text; save it as UTF-8"),
        (b"routes:\n\t- a\n", "2: is indented with a tab; indent with spaces"),
        (b"\x7fELF\x02\x01", "1: is not UTF-8 text; save it as UTF-8"),
    ],
)
def test_what_is_no_utf8_text_is_one_line(file: Path, content: bytes, line: str) -> None:
    if line.startswith("1: is not UTF-8"):
        content += b"\xff"
    assert refusal(write(file, content)) == line


@pytest.mark.parametrize(
    "content", ["\ufeff" + GOOD, GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD.replace("\n", "\r\n")]
)
def test_files_from_other_editors_are_read_alike(file: Path, content: str) -> None:
    assert load_route_file(write(file, content), ENVIRON) == load_route_file(write(file, GOOD), ENVIRON)


def test_a_file_of_exactly_the_bound_is_read_and_one_byte_more_is_not(file: Path) -> None:
    padded = GOOD + "#".ljust(LARGEST_TEXT - len(GOOD), "é")
    content = padded.encode()[: LARGEST_TEXT - 1]
    content = content.decode(errors="ignore").encode().ljust(LARGEST_TEXT, b"x")
    load_route_file(write(file, content), ENVIRON)
    assert refusal(write(file, content + b"x")).startswith(" is larger than 256 KiB; ")


def test_all_problems_are_told_each_on_a_line_of_its_own(file: Path) -> None:
    write(file, GOOD.replace("model: m", "model: 4").replace("mock://system", "http://169.254.169.254"))
    with pytest.raises(RouteFileError) as caught:
        load_route_file(file, ENVIRON)
    lines = str(caught.value).split("\n")
    assert [line.removeprefix(str(file)).split(":")[1] for line in lines] == ["3", "6", "7"]
    assert all("; " in line for line in lines)


def test_a_check_raises_nothing_and_tells_problems_warnings_and_the_good_routes(file: Path) -> None:
    write(file, GOOD.replace("model: m", f"api_key: {CANARY}"))
    check = check_route_file(file, ENVIRON)
    assert check.name == str(file)
    assert [problem.line for problem in check.problems] == [2, 5]
    assert [candidate.model for candidate in check.candidates] == ["s"]
    assert check_route_file(write(file, GOOD), ENVIRON).problems == ()
    assert CANARY not in repr(check)


# Files it names


def test_a_ca_bundle_is_looked_for_beside_the_file(file: Path, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    write(
        file,
        GOOD.replace("http://localhost", "https://localhost").replace(
            "    model: m", "    model: m\n    ca_bundle: ca.pem"
        ),
    )
    assert load_route_file(file, ENVIRON).bundle.routes[0].ca_bundle == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        ("", "holds no certificate"),
        ("no certificate\n", "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificate"),
    ],
)
def test_a_ca_bundle_that_cannot_be_used_is_a_problem(
    file: Path, tmp_path: Path, content: str | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "ca.pem").write_text(content)
    write(
        file,
        GOOD.replace("http://localhost", "https://localhost").replace(
            "    model: m", "    model: m\n    ca_bundle: ca.pem"
        ),
    )
    line = refusal(file)
    assert line.startswith(f"4: ca_bundle {tmp_path}/ca.pem")
    assert reason in line


def test_a_directory_is_no_ca_bundle(file: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").mkdir()
    write(
        file,
        "routes: [{endpoint: 'https://h', model: m, provider_type: openai, api_key_env: SOME_KEY, ca_bundle: ca.pem}]",
    )
    assert "is a directory" in refusal(file)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("- endpoint: gguf://{}/m.gguf", "2: endpoint {}/m.gguf"),
        ("- provider_type: local_gguf\n  model_path: m.gguf", "3: model_path {}/m.gguf"),
    ],
)
def test_a_model_file_is_there_and_is_a_gguf_file(file: Path, tmp_path: Path, entry: str, line: str) -> None:
    write(file, "routes:\n" + entry.format(tmp_path))
    expected = line.format(tmp_path)
    assert refusal(file) == f"{expected}: no such file; check it; relative paths start at the route file's directory"
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refusal(file) == f"{expected} is no GGUF file; fetch the model again; check the path"
    (tmp_path / "m.gguf").write_bytes(b"GGU")
    assert "is no GGUF file" in refusal(file)
    (tmp_path / "m.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    (candidate,) = load_route_file(file, {}).bundle.routes
    assert (candidate.endpoint.path, candidate.model) == (f"{tmp_path}/m.gguf", "m")


def test_relative_paths_start_at_the_files_directory_and_not_at_ours(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.gguf").write_bytes(b"GGUF")
    file = write(tmp_path / "sub" / "r.yaml", "routes: [{provider_type: local_gguf, model_path: m.gguf}]")
    (candidate,) = load_route_file(os.path.relpath(file), {}).bundle.routes
    assert candidate.endpoint.path == str(tmp_path / "sub" / "m.gguf")


# Warnings

INLINE = GOOD.replace("api_key_env: SOME_KEY", f"api_key: {CANARY}")


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666])
def test_a_file_that_everyone_can_read_and_that_holds_a_key_deserves_a_warning(file: Path, mode: int) -> None:
    (warning,) = warnings(write(file, INLINE, mode))
    assert warning == (
        f"{file}:5: every user of this machine can read this file, and it holds an api_key; "
        "chmod 600 it, or use api_key_env"
    )


@pytest.mark.parametrize(("content", "mode"), [(INLINE, 0o600), (INLINE, 0o640), (GOOD, 0o644)])
def test_a_file_that_is_private_or_holds_no_key_does_not(file: Path, content: str, mode: int) -> None:
    assert warnings(write(file, content, mode)) == ()


@pytest.mark.parametrize(("name", "known"), [("antropic", "anthropic"), ("openai-compatible", "openai_compatible")])
def test_a_provider_type_that_is_almost_known_deserves_a_warning(file: Path, name: str, known: str) -> None:
    (warning,) = warnings(write(file, GOOD.replace("    model: m", f"    model: m\n    provider_type: {name}")))
    assert warning == (
        f"{file}:4: unknown provider_type {name} gets a Bearer key and no extra headers; did you mean {known}?"
    )


def test_a_provider_type_of_ones_own_does_not(file: Path) -> None:
    assert warnings(write(file, GOOD.replace("    model: m", "    model: m\n    provider_type: lm-studio"))) == ()


def test_a_protocol_that_no_request_matches_deserves_a_warning(file: Path) -> None:
    (warning,) = warnings(write(file, GOOD.replace("protocols: [", "protocols: [aws_bedrock_invoke, ", 1)))
    assert ":4: protocol aws_bedrock_invoke is kept, but no request matches it; " in warning


def test_a_key_for_a_local_model_deserves_a_warning(file: Path, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    write(file, f"routes:\n- endpoint: gguf://{tmp_path}/m.gguf\n  api_key: {CANARY}\n")
    (warning,) = warnings(file)
    assert ":3: a local model takes no key, so api_key is not used; remove the line" in warning


def test_a_route_that_is_never_used_deserves_a_warning(file: Path) -> None:
    more = GOOD.partition("routes:\n")[2].partition("  - route")[0]
    (warning,) = warnings(write(file, GOOD + more))
    assert (
        ":10: this route is never used: what it speaks goes to the route in line 2; move it up or remove it" in warning
    )
    wider = more.replace("[openai_chat_completions]", "[openai_chat_completions, model_discovery]")
    assert warnings(write(file, GOOD + wider)) == ()
