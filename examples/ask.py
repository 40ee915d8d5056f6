"""An ordinary OpenAI SDK script. Nothing in it knows of Pointsman: no URL, no key, no certificate.

sudo pointsman sandbox run --inference-routes routes.yaml -- python examples/ask.py "Why is the sky blue?"
"""

import sys

import openai

question = sys.argv[1] if len(sys.argv) > 1 else "Why is the sky blue? Answer in one sentence."
stream = openai.OpenAI().chat.completions.create(
    model="gpt-4o", messages=[{"role": "user", "content": question}], max_tokens=60, stream=True
)
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
print()
