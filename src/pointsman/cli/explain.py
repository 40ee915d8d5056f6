"""`pointsman explain`: what would become of a request, without sending it."""

import sys
from typing import IO

import click

from pointsman.cli.call import Access, client_options
from pointsman.cli.explained import explanation_json, explanation_lines
from pointsman.cli.show import output_option, show
from pointsman.core.explanation import CHAT_PATH
from pointsman.core.limits import DEFAULT_LIMITS

_NOBODY = 1


@click.command()
@click.argument("model", metavar="[MODEL]", default="")
@click.option("--path", default=CHAT_PATH, show_default=True, metavar="PATH", help="What the client would call.")
@click.option(
    "--body",
    type=click.File("rb"),
    metavar="FILE",
    help="The body that it would send, which names the model; '-' is standard input.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME",
    help="A header that it would send: is it passed on? Again for more. Values are not needed, and not sent.",
)
@click.option("--key-name", default="", metavar="KEY", help="Ask for a client that shows this key.")
@click.option("--sandbox", default="", metavar="TOKEN", help="Ask for a sandbox that has the token of this name.")
@click.option(
    "--from", "address", default="", metavar="ADDRESS", help="Ask for a client at this IP address: keys have networks."
)
@output_option
@client_options
def explain(
    access: Access, model: str, path: str, body: IO[bytes] | None, headers: tuple[str, ...], **others: str
) -> None:
    """Say what each stage would make of a request, who would be asked for it, in which order, and why others would
    not. Nothing is sent or counted.

    MODEL is what the request names: a route, or any other name where the gateway has a default route. An agent in a
    sandbox names anything and gets what inference.local leads to: ask for inference.local, or for --sandbox TOKEN.

    One line tells of one provider: its turn, what it would be sent as the model, what is left of its quota, whether its
    key is there. Strategies are asked as for the next request, and forget that they were. What is drawn by chance, as
    equals of least_used are, may come out differently for the request itself.

    Stages are what the gateway does around a request: budgets, policies, context, receipts. With --body they are asked
    for that very body; without one, budgets are asked for a body that holds the model alone, and a policy's rules are
    only listed.

    Exits with 0 when somebody would be asked, with 1 when nobody would: the line then tells the status and the text
    that the client would get.

    \b
    Examples:
      pointsman explain fast
      pointsman explain fast --path /v1/messages -o json
      pointsman explain --body request.json --key-name laptop
      pointsman explain fast --key-name ci --from 10.1.2.3
      pointsman explain inference.local
    """
    from pointsman.rpc.gen import control_pb2

    # One byte more than a listener takes, so that the answer is what the listener would say of it.
    content = None if body is None else body.read(DEFAULT_LIMITS.body_bytes + 1)
    request = control_pb2.ExplainRequest(
        model=model,
        path=path,
        body=content,
        header_names=[each.partition(":")[0] for each in headers],
        key_name=others["key_name"],
        sandbox=others["sandbox"],
        address=others["address"],
    )
    with access.open() as gateway:
        explanation = gateway.call(gateway.control.Explain, request)
    output = others["output"]
    show(output, explanation_lines(explanation), explanation_json(explanation))
    sys.exit(0 if explanation.tried else _NOBODY)
