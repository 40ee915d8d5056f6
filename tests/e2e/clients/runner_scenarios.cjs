// The official Node SDKs on a runner's models: what each answer and failure becomes in a program.
// Arguments: the gateway's base URL, then the names of the models: one that answers, one that its runner does not allow,
// and one whose runner is away. Prints one JSON line: {scenario: value, or {type, status, code, text}}.
"use strict";

const OpenAI = require(process.env.OPENAI_PACKAGE).default;
const Anthropic = require("@anthropic-ai/sdk").default;

const [base, model, barred, away] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "unused", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: "unused", maxRetries: 0 });
const chat = (text, rest, options) =>
  openai.chat.completions.create({ model, messages: [{ role: "user", content: text }], ...rest }, options);
const weather = { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } };

async function read(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
}

async function streamedCall() {
  let name = "";
  let args = "";
  for await (const chunk of await chat("Use a tool.", { tools: [weather], stream: true })) {
    for (const call of chunk.choices[0]?.delta?.tool_calls ?? []) {
      name += call.function.name ?? "";
      args += call.function.arguments ?? "";
    }
  }
  return [name, JSON.parse(args)];
}

async function usage() {
  let last;
  for await (const chunk of await chat("Hello?", { stream: true, stream_options: { include_usage: true } })) last = chunk;
  return last.usage.completion_tokens;
}

async function busy() {
  const control = new AbortController();
  const taken = await Promise.all([1, 2, 3, 4].map(() => chat("Stay.", { stream: true }, { signal: control.signal })));
  try {
    return taken.length && (await chat("Hello?"));
  } finally {
    control.abort();
  }
}

const scenarios = {
  chat: async () => (await chat("Hello?")).choices[0].message.content,
  stream: async () => read(await chat("Hello?", { stream: true })),
  call: streamedCall,
  usage,
  models: async () => (await openai.models.list()).data.map((each) => each.id),
  cut: async () => read(await chat("Be cut off.", { stream: true })),
  refused: async () => chat("Be refused."),
  broken: async () => chat("Be broken."),
  large: async () => chat("x".repeat(1024 * 1024)),
  barred: async () => chat("Hello?", { model: barred }),
  away: async () => chat("Hello?", { model: away }),
  busy,
  dialect: async () => anthropic.messages.create({ model, max_tokens: 9, messages: [{ role: "user", content: "Hello?" }] }),
};

(async () => {
  const outcomes = {};
  for (const [name, run] of Object.entries(scenarios)) {
    try {
      outcomes[name] = await run();
    } catch (error) {
      outcomes[name] = { type: error.constructor.name, status: error.status, code: error.code, text: error.message };
    }
  }
  console.log(JSON.stringify(outcomes));
})();
