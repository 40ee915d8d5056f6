// The official Node SDKs as an ordinary program uses them: no argument names a URL, a key, a proxy or a certificate.
// Runs the scenarios named on its command line and prints one JSON line for each: {name, value} or {name, error}.
"use strict";

const openaiPackage = process.env.OPENAI_PACKAGE;
const OpenAI = require(openaiPackage).default;
const Anthropic = require("@anthropic-ai/sdk").default;

// Outside a sandbox, Node 20 must be told of the proxy in its program.
const fetchOptions = process.env.WITH_UNDICI
  ? { dispatcher: new (require("undici").EnvHttpProxyAgent)() }
  : undefined;
const fetch = process.env.WITH_UNDICI ? require("undici").fetch : undefined;

const openai = new OpenAI({ maxRetries: 0, fetch, fetchOptions });
const anthropic = new Anthropic({ maxRetries: 0, fetch, fetchOptions });
const say = (text) => [{ role: "user", content: text }];
const GREET = "Say hello to the world.";
const CUT = "Be cut off.";
// A real model then says the same each time. llama.cpp leaves out message_start where an answer begins with an emoji.
const STEADY = { temperature: 0 };

async function gather(stream, pick) {
  let text = "";
  let last;
  for await (const event of stream) {
    text += pick(event) ?? "";
    last = event;
  }
  return { text, last };
}

const chat = (text, rest) => openai.chat.completions.create({ model: "any", messages: say(text), max_tokens: 16, ...STEADY, ...rest });
const respond = (input, rest) => openai.responses.create({ model: "any", input, max_output_tokens: 16, ...STEADY, ...rest });
const message = (text, rest) =>
  anthropic.messages.create({ model: "any", max_tokens: 16, messages: say(text), ...STEADY, ...rest });
const chatText = (chunk) => chunk.choices[0]?.delta?.content;
const responseText = (event) => (event.type === "response.output_text.delta" ? event.delta : "");
const messageText = (event) => (event.type === "content_block_delta" ? event.delta.text : "");

const scenarios = {
  chat: async () => (await chat(GREET)).choices[0].message.content,
  chat_stream: async () => {
    const { text, last } = await gather(
      await chat(GREET, { stream: true, stream_options: { include_usage: true } }), chatText);
    return [text, last.usage.completion_tokens > 0];
  },
  chat_cut: async () => gather(await chat(CUT, { stream: true }), chatText),
  responses: async () => (await respond(GREET)).output_text,
  responses_stream: async () => {
    const { text, last } = await gather(await respond(GREET, { stream: true }), responseText);
    return [text, last.type];
  },
  responses_cut: async () => gather(await respond(CUT, { stream: true }), responseText),
  messages: async () => (await message(GREET)).content[0].text,
  messages_stream: async () => {
    const { text, last } = await gather(await message(GREET, { stream: true }), messageText);
    return [text, last.type];
  },
  messages_helper: async () => {
    const stream = anthropic.messages.stream({ model: "any", max_tokens: 16, messages: say(GREET), ...STEADY });
    return (await stream.finalMessage()).content[0].text;
  },
  messages_cut: async () => gather(await message(CUT, { stream: true }), messageText),
  models: async () => (await openai.models.list()).data.length > 0,
  count_tokens: async () =>
    (await anthropic.messages.countTokens({ model: "any", messages: say(GREET) })).input_tokens > 0,
  elsewhere: async () => (await globalThis.fetch("https://example.com/")).status,
};

(async () => {
  for (const name of process.argv.slice(2)) {
    let outcome;
    try {
      outcome = { name, value: await scenarios[name]() };
    } catch (error) {
      const cause = error.cause ? `: ${error.cause.message ?? error.cause}` : "";
      outcome = { name, error: { type: error.constructor.name, text: `${error.message}${cause}` } };
    }
    console.log(JSON.stringify(outcome));
  }
})();
