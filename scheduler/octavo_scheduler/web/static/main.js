// Wires the page together: who we talk to, the chat, and what the server is doing, asked twice a second.

import { call, Refused, token } from "./api.js";
import { startChat } from "./chat.js";
import { Board } from "./pages.js";
import { drawTimeline } from "./timeline.js";
import { quantile, Window } from "./window.js";

const BETWEEN_LOOKS = 500; // milliseconds
const RECENT = 10; // seconds over which speeds and latencies are taken
const element = (id) => document.getElementById(id);

const statuses = new Window(125);

function time(seconds) {
  if (seconds === null) return "–";
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
}

function figures() {
  const after = statuses.newest;
  const before = statuses.before(RECENT);
  const seconds = after.uptime_seconds - before.uptime_seconds;
  const speed = seconds > 0 ? (after.counters.generated_tokens - before.counters.generated_tokens) / seconds : 0;
  const sum = (name) => after.workers.reduce((total, worker) => total + worker[name], 0);
  const median = (name) => time(quantile(before.service[name], after.service[name], 0.5));
  return {
    "tokens/s": speed.toFixed(speed < 10 ? 1 : 0),
    running: sum("running"),
    "swapped out": sum("swapped"),
    waiting: after.waiting,
    "first token": median("first_token_seconds"),
    "next token": median("inter_token_seconds"),
    "swaps, drops": `${after.counters.swaps}, ${after.counters.drops}`,
  };
}

function showFigures() {
  const list = element("figures");
  for (const [name, value] of Object.entries(figures())) {
    let entry = [...list.children].find((child) => child.dataset.name === name);
    if (!entry) {
      entry = list.appendChild(document.createElement("div"));
      entry.dataset.name = name;
      entry.appendChild(document.createElement("dt")).textContent = name;
      entry.appendChild(document.createElement("dd"));
    }
    entry.lastChild.textContent = value;
  }
}

async function look(board) {
  const [status, maps] = await Promise.all([
    call("AdminService/GetStatus"),
    call("AdminService/GetPageMap", { with_holders: true }),
  ]);
  statuses.add(status);
  showFigures();
  drawTimeline(element("chart"), statuses.statuses);
  board.update(maps.workers);
  return status.workers.length ? "" : "no worker is here: requests wait";
}

async function watch(board) {
  for (;;) {
    if (!document.hidden) {
      try {
        element("engine-state").textContent = await look(board);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        element("engine-state").textContent = error.needsToken ? "an administrator's token shows the pages" : error.message;
        element("open-token").hidden &&= !error.needsToken;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, BETWEEN_LOOKS));
  }
}

async function showModel() {
  try {
    const [model] = (await call("InferenceService/ListModels")).models;
    element("model").textContent = `${model.name} · context of ${model.max_context.toLocaleString("en")} tokens`;
    document.title = `${model.name} · Octavo`;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    element("model").textContent = error.message;
    if (error.needsToken) {
      element("open-token").hidden = false;
      element("token-dialog").showModal();
    }
  }
}

const dialog = element("token-dialog");
element("open-token").addEventListener("click", () => dialog.showModal());
dialog.addEventListener("close", () => {
  if (dialog.returnValue === "use") {
    token.set(element("token").value.trim());
    showModel();
  }
  element("token").value = "";
});

startChat();
showModel();
watch(new Board(element("workers"), element("legend"), element("detail")));
