// The server's gRPC services, as JSON over HTTP: see docs/how-to/watch-a-server.md.

const TOKEN = "octavo-token";

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (value) => sessionStorage.setItem(TOKEN, value),
};

/** What the server said instead of an answer. `status` is HTTP's, or 0 when there was none. */
export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
  get needsToken() {
    return this.status === 401 || this.status === 403;
  }
}

async function post(method, message, signal) {
  const headers = { "content-type": "application/json" };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(`/octavo.v1.${method}`, { method: "POST", headers, body: JSON.stringify(message), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("the server does not answer");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw new Refused(said.message ?? response.statusText, response.status);
}

/** One answer. Throws Refused. */
export async function call(method, message = {}) {
  return (await post(method, message)).json();
}

/** The messages of a streaming method, as they come. Throws Refused, or AbortError once `signal` says so. */
export async function* stream(method, message, signal) {
  const response = await post(method, message, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) yield parsed(event);
  }
}

function parsed(event) {
  const data = JSON.parse(event.slice(event.indexOf("data: ") + "data: ".length));
  if (event.startsWith("event: error")) throw new Refused(data.message);
  return data;
}
