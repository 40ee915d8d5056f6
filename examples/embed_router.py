"""Use the router as a library: one buffered call, in process, over the `sandbox-system` route.

    python examples/embed_router.py

It writes a route file with a mock route, so it needs no key and no network.
"""

import asyncio
import json
import os
import tempfile
from pathlib import Path

import pointsman
from pointsman.config.routes_file import LoadedRoutes

ROUTES = """
routes:
  - route: sandbox-system
    endpoint: mock://canned
    model: policy-model
    protocols: [openai_chat_completions]
"""


def load() -> LoadedRoutes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "routes.yaml")
        path.write_text(ROUTES)
        return pointsman.load_route_file(path, os.environ)


async def ask(loaded: LoadedRoutes) -> None:
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "May it run 'ls'?"}]}).encode()
    async with pointsman.open_router(loaded.bundle) as router:
        answer = await router.system_inference(
            "openai_chat_completions", "POST", "/v1/chat/completions", [("content-type", "application/json")], body
        )
    content = json.loads(answer.body)
    print(answer.status, content["model"], "says:", content["choices"][0]["message"]["content"])


asyncio.run(ask(load()))
