// The page map: a canvas for each tier of each worker, one cell a page.

const STATES = ["free", "cached", "held", "shared", "fenced", "swapping", "quarantined"];
const STRIPED = ["fenced", "swapping", "quarantined"]; // told from the colours of requests by a stripe
const TEXTS = {
  free: "ready to be taken",
  cached: "kept for requests that begin alike",
  held: "of one sequence, in the colour of its request",
  shared: "of several sequences",
  fenced: "given back while a step still names it",
  swapping: "moving between device and host",
  quarantined: "taken out of use after a failed audit",
};
const MOST_HEIGHT = 260; // of a map, in pixels of the page, unless cells would get too small to point at
const SMALLEST = 5;
const LARGEST = 20;

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries([...STATES, "paper"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
};

/** The same colour for the same request, on every draw and in every tier. */
export function ownerColour(id) {
  let hash = 2166136261;
  for (const letter of id) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619) >>> 0;
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return `hsl(${hash % 360} ${42 + (hash >>> 9) % 24}% ${(isDark ? 46 : 38) + (hash >>> 16) % 16}%)`;
}

/** The state of every page, and whose it is: [{state, holders: [{holder, place}]}], from page 1 on. */
export function cells(map) {
  const found = [];
  map.states.forEach((name, run) => {
    const state = name.replace("PAGE_STATE_", "").toLowerCase();
    for (let i = 0; i < map.num_pages[run]; i++) found.push({ state, holders: [] });
  });
  for (const holder of map.holders) {
    holder.pages.forEach((page, place) => found[page - 1]?.holders.push({ holder, place }));
  }
  return found;
}

class Tier {
  constructor(parent, name, board) {
    this.name = name;
    this.board = board;
    this.title = parent.appendChild(document.createElement("h4"));
    this.canvas = parent.appendChild(document.createElement("canvas"));
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.cells = [];
    this.at = null; // the page that is pointed at, from 0
    this.canvas.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.canvas.addEventListener("pointerdown", (event) => this.point(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("blur", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => this.walk(event));
  }

  update(map, pageSize) {
    this.cells = cells(map);
    this.pageSize = pageSize;
    const count = this.cells.filter((cell) => cell.state !== "free" && cell.state !== "cached").length;
    this.title.textContent = `${this.name}: ${count} of ${this.cells.length} pages in use`;
    this.canvas.setAttribute("aria-label", `Map of the ${this.name} pages: ${count} of ${this.cells.length} in use`);
    this.draw();
    if (this.at !== null) this.board.tell(this);
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.cells.length) return;
    const size = Math.floor(Math.sqrt((width * MOST_HEIGHT) / this.cells.length));
    this.size = Math.min(LARGEST, Math.max(SMALLEST, size));
    this.columns = Math.max(1, Math.floor(width / this.size));
    const height = Math.ceil(this.cells.length / this.columns) * this.size;
    const scale = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext("2d");
    context.scale(scale, scale);
    this.cells.forEach((cell, page) => this.drawCell(context, cell, page));
  }

  drawCell(context, cell, page) {
    const gap = this.size > 8 ? 2 : 1;
    const x = (page % this.columns) * this.size;
    const y = Math.floor(page / this.columns) * this.size;
    const side = this.size - gap;
    const { palette, chosen } = this.board;
    const owner = cell.holders[0]?.holder.id;
    const isOwned = cell.state === "held" || cell.state === "shared";
    context.globalAlpha = chosen && !cell.holders.some(({ holder }) => holder.id === chosen) ? 0.35 : 1;
    context.fillStyle = isOwned && owner ? ownerColour(owner) : palette[cell.state];
    context.fillRect(x, y, side, side);
    if (cell.state === "shared") {
      context.fillStyle = palette.free;
      context.fillRect(x + side * 0.3, y + side * 0.3, side * 0.4, side * 0.4);
    }
    if (STRIPED.includes(cell.state)) {
      context.strokeStyle = palette.paper;
      context.lineWidth = Math.max(1, side / 5);
      context.beginPath();
      context.moveTo(x, y + side);
      context.lineTo(x + side, y);
      context.stroke();
    }
    if (this.at === page) {
      context.globalAlpha = 1;
      context.lineWidth = 2;
      context.strokeStyle = getComputedStyle(this.canvas).color;
      context.strokeRect(x + 1, y + 1, side - 2, side - 2);
    }
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size);
    const page = Math.floor((event.clientY - box.top) / this.size) * this.columns + column;
    return column < this.columns && this.cells[page] ? page : null;
  }

  walk(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const page = this.at === null ? 0 : this.at + steps[event.key];
    if (this.cells[page]) this.point(page);
  }

  point(page) {
    if (page === this.at) return;
    this.at = page;
    this.board.point(this);
  }

  /** What is to be said about the page that is pointed at. */
  words() {
    const { state, holders } = this.cells[this.at];
    const page = `Page ${this.at + 1} of the ${this.name}`;
    if (!holders.length) return `${page}: ${state}, ${TEXTS[state]}`;
    const named = holders.slice(0, 4).map(({ holder, place }) => {
      const first = place * this.pageSize;
      const branch = holder.branch ? `, answer ${holder.branch + 1}` : "";
      return `${holder.request_id}${branch}: tokens ${first} to ${first + this.pageSize - 1}, its page ${place + 1} of ${holder.pages.length}`;
    });
    const more = holders.length > named.length ? `; and ${holders.length - named.length} more` : "";
    return `${page}: ${state}. ${named.join("; ")}${more}`;
  }
}

/** All maps, and what they have in common: colours, and the request that is pointed at. */
export class Board {
  constructor(workers, legend, detail) {
    this.parent = workers;
    this.detail = detail;
    this.hint = detail.textContent;
    this.palette = colours();
    this.chosen = null;
    this.workers = new Map();
    for (const state of STATES) {
      const item = legend.appendChild(document.createElement("li"));
      const sample = item.appendChild(document.createElement("span"));
      sample.className = state;
      if (STRIPED.includes(state)) sample.classList.add("striped");
      sample.style.backgroundColor = `var(--${state})`;
      item.title = TEXTS[state];
      item.append(state === "held" ? "held (each request its colour)" : state);
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(workers);
  }

  redraw() {
    this.palette = colours();
    for (const { tiers } of this.workers.values()) tiers.forEach((tier) => tier.draw());
  }

  update(maps) {
    for (const [id, { section }] of this.workers) {
      if (maps.some((map) => map.worker_id === id)) continue;
      section.remove();
      this.workers.delete(id);
    }
    for (const map of maps) {
      const { title, tiers } = this.workers.get(map.worker_id) ?? this.add(map);
      title.textContent = ` ${map.page_size} tokens a page`;
      tiers.forEach((tier) => tier.update(map[tier.name], map.page_size));
    }
  }

  add(map) {
    const section = this.parent.appendChild(document.createElement("div"));
    section.className = "worker";
    const heading = section.appendChild(document.createElement("h3"));
    heading.append(map.worker_id);
    const title = heading.appendChild(document.createElement("small"));
    const names = ["device", "host"].filter((name) => map[name].num_pages.length);
    const worker = { section, title, tiers: names.map((name) => new Tier(section, name, this)) };
    this.workers.set(map.worker_id, worker);
    return worker;
  }

  point(tier) {
    const cell = tier.at === null ? null : tier.cells[tier.at];
    this.chosen = cell?.holders[0]?.holder.id ?? null;
    this.tell(tier);
    this.redraw();
  }

  tell(tier) {
    this.detail.textContent = tier.at !== null && tier.cells[tier.at] ? tier.words() : this.hint;
  }
}
