// A conversation. What the model says is text, and is never read as anything else.

import { Refused, stream } from "./api.js";

const element = (id) => document.getElementById(id);
const messages = element("messages");
const conversation = [];
let running = null; // the AbortController of the answer that is coming

function show(kind, text) {
  messages.querySelector(".hint")?.remove();
  const paragraph = document.createElement("p");
  paragraph.className = `message ${kind}`;
  paragraph.append(text);
  messages.append(paragraph);
  messages.scrollTop = messages.scrollHeight;
  return paragraph;
}

function note(text) {
  const paragraph = document.createElement("p");
  paragraph.className = "stats";
  paragraph.textContent = text;
  messages.append(paragraph);
  messages.scrollTop = messages.scrollHeight;
}

function request() {
  const number = (id) => (element(id).value === "" ? undefined : Number(element(id).value));
  const system = element("system").value.trim();
  return {
    messages: [...(system ? [{ role: "system", content: system }] : []), ...conversation],
    options: {
      sampling: { temperature: number("temperature"), top_p: number("top-p"), seed: element("seed").value || undefined },
      stopping: { max_tokens: number("max-tokens") },
    },
  };
}

function setRunning(controller) {
  running = controller;
  element("send").hidden = controller !== null;
  element("stop").hidden = controller === null;
}

const milliseconds = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`);

function summary(end) {
  const { usage, timings } = end;
  const decode = timings.total_seconds - timings.first_token_seconds;
  const parts = [`${usage.completion_tokens} tokens`, `first after ${milliseconds(timings.first_token_seconds)}`];
  if (usage.completion_tokens > 1 && decode > 0) parts.push(`${((usage.completion_tokens - 1) / decode).toFixed(1)} tokens/s`);
  if (usage.cached_tokens) parts.push(`${usage.cached_tokens} of ${usage.prompt_tokens} prompt tokens cached`);
  if (timings.preemptions) parts.push(`preempted ${timings.preemptions}×`);
  if (end.branches[0]?.finish.reason === "FINISH_REASON_LENGTH") parts.push("ended by its limit");
  return parts.join(" · ");
}

/** Streams one answer into the page. It is kept in the conversation, whole or as far as it came. */
async function answer() {
  const controller = new AbortController();
  setRunning(controller);
  const bubble = show("assistant running", "");
  const text = bubble.appendChild(document.createTextNode(""));
  try {
    for await (const message of stream("InferenceService/ChatStream", request(), controller.signal)) {
      if (message.delta) text.appendData(message.delta.text);
      const isAtEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 80;
      if (isAtEnd) messages.scrollTop = messages.scrollHeight;
      if (message.end) note(summary(message.end));
    }
  } catch (error) {
    if (error.name === "AbortError") note("stopped");
    else if (error instanceof Refused) show("failed", error.message).setAttribute("role", "alert");
    else throw error;
  } finally {
    bubble.classList.remove("running");
    if (text.data) conversation.push({ role: "assistant", content: text.data });
    else bubble.remove();
    setRunning(null);
  }
}

export function startChat() {
  const question = element("question");
  element("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const content = question.value.trim();
    if (!content || running) return;
    question.value = "";
    conversation.push({ role: "user", content });
    show("user", content);
    answer();
  });
  question.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      element("ask").requestSubmit();
    }
  });
  element("stop").addEventListener("click", () => running?.abort());
  element("clear").addEventListener("click", () => {
    running?.abort();
    conversation.length = 0;
    messages.replaceChildren();
    question.focus();
  });
}
