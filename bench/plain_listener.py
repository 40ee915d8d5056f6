"""Pointsman's data plane without CONNECT and TLS, so that it can be compared with proxies in clear text.

For benchmarks only: nothing authenticates the client. Its log goes to stderr, as that of `sandbox proxy` does.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from pointsman.config.problems import RouteFileError
from pointsman.config.routes_file import load_route_file
from pointsman.proxy.process import run
from pointsman.sandbox.app import ProxyOptions, run_proxy
from pointsman.sandbox.route_source import FileRoutes


def main(arguments: list[str]) -> int:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--inference-routes", required=True, metavar="FILE")
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    options = parser.parse_args(arguments)
    host, _, port = options.listen.rpartition(":")
    try:
        routes = FileRoutes(load_route_file(options.inference_routes, os.environ))
    except RouteFileError as error:
        print(f"plain_listener: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as unused_ca:
        return run(run_proxy(ProxyOptions(routes, (host, int(port)), Path(unused_ca), plain=True)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
