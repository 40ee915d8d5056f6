// The official Node SDKs on a gateway's chain: what each failure becomes in a program. One base URL is all they are told.
// Prints one JSON line: {scenario: value, or {type, status, code, text}}.
"use strict";

const OpenAI = require(process.env.OPENAI_PACKAGE).default;
const Anthropic = require("@anthropic-ai/sdk").default;

const [base] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: "unused" });
const anthropic = new Anthropic({ baseURL: base, apiKey: "unused" });
const messages = (content) => [{ role: "user", content }];
const chat = (text, rest) => openai.chat.completions.create({ model: "fast", messages: messages(text), ...rest });
const message = (model) => anthropic.messages.create({ model, max_tokens: 9, messages: messages("Hello?") });
const weather = { type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } };

async function read(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
}

const scenarios = {
  chat: async () => (await chat("Hello?")).choices[0].message.content,
  stream: async () => read(await chat("Hello?", { stream: true })),
  tool: async () => (await chat("Use a tool.", { tools: [weather] })).choices[0].message.tool_calls[0].function.name,
  models: async () => (await openai.models.list()).data.map((model) => model.id),
  cut: async () => read(await chat("Be cut off.", { stream: true })),
  refused: async () => chat("Be refused."),
  nobody: async () => chat("Be broken."),
  unknown: async () => chat("Hello?", { model: "fsat" }),
  message: async () => (await message("mixed")).content[0].text,
  dialect: async () => message("fast"),
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
