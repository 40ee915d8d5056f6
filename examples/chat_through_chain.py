"""An ordinary OpenAI client that asks a chain of a gateway, and says who answered.

    python examples/chat_through_chain.py [MODEL [QUESTION]]

MODEL is the chain's name, `fast` unless given. OPENAI_BASE_URL is the gateway's data listener, OPENAI_API_KEY a key
from `pointsman key create`; a gateway on loopback asks for none.
"""

import os
import sys

import openai

model = sys.argv[1] if len(sys.argv) > 1 else "fast"
question = sys.argv[2] if len(sys.argv) > 2 else "Why is the sky blue? Answer in one sentence."
client = openai.OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8780/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
    max_retries=0,  # the chain has tried everybody already
)
try:
    answer = client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=60, stream=True
    )
except openai.APIStatusError as error:
    after = error.response.headers.get("retry-after")
    sys.exit(f"{error.message}{f'; try again in {after} s' if after else ''}")
for chunk in answer.parse():
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
told = {name: answer.headers.get(f"x-pointsman-{name}") for name in ("route", "model", "attempts", "fallback")}
print("\n" + " ".join(f"{name}={value}" for name, value in told.items() if value))
