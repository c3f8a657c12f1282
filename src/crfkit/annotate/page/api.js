// The server, and the outbox in which a write waits until the server has acknowledged it.

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const uuid = () => crypto.randomUUID?.() ?? fallback();

// randomUUID exists in secure contexts only (https or localhost); a page served to another host needs this one.
function fallback() {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6] & 15) | 64;
  b[8] = (b[8] & 63) | 128;
  const hex = [...b].map((x) => x.toString(16).padStart(2, "0")).join("");
  return hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
}

async function request(path, body) {
  const options = { credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(60000) };
  if (body !== undefined) {
    options.method = "POST";
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new ApiError("The server does not answer.", 0);
  }
  const data = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new ApiError(data.error ?? `The server answered ${reply.status}.`, reply.status);
  return data;
}

/** Reads; parameters without a value are left out. */
export function get(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const query = new URLSearchParams(given).toString();
  return request(query ? `${path}?${query}` : path);
}

const STORE = "crfkit-outbox";
const DRAFT = "/api/draft";
const later = (status) => status === 0 || status === 401 || status === 408 || status === 429 || status >= 500;

/**
 * Writes, one after another, each with a key of its own, sent again until the server has acknowledged it.
 * What waits lies in sessionStorage too, so that a reload sends it; the key makes a second arrival harmless.
 */
class Outbox {
  constructor() {
    this.items = JSON.parse(sessionStorage.getItem(STORE) ?? "[]");
    this.waiting = new Map(); // id of an item: [resolve, reject]
    this.running = null; // a promise while something is under way
    this.onchange = () => {}; // gets {waiting, error, again: seconds}
    this.wake = () => {};
    addEventListener("online", () => this.wake());
    addEventListener("beforeunload", (event) => this.trouble && event.preventDefault());
  }

  save() {
    sessionStorage.setItem(STORE, JSON.stringify(this.items));
  }

  /** The server's reply; rejects only when the server refuses (4xx). */
  send(path, body, name = "key") {
    const id = uuid();
    const last = this.items.length > 1 ? this.items[this.items.length - 1] : null; // the first is under way
    if (path === DRAFT && last?.path === DRAFT) this.waiting.delete(this.items.pop().id); // a newer one replaces it
    this.items.push({ id, path, body: name ? { ...body, [name]: id } : body });
    this.save();
    const promise = new Promise((...settle) => this.waiting.set(id, settle));
    this.flush();
    return promise;
  }

  /** Sends all that waits, also what an earlier page left; drain() forgets itself in the step in which it ends. */
  flush() {
    if (!this.running && this.items.length) this.running = this.drain();
    return this.running;
  }

  async drain() {
    let pause = 0.5;
    while (this.items.length) {
      const item = this.items[0];
      let settle;
      try {
        const reply = await request(item.path, item.body);
        settle = ([resolve]) => resolve(reply);
      } catch (error) {
        if (later(error.status)) {
          this.trouble = error;
          this.onchange({ waiting: this.items.length, error, again: pause });
          await new Promise((go) => {
            this.wake = go;
            setTimeout(go, 1000 * pause);
          });
          pause = Math.min(2 * pause, 5);
          continue;
        }
        settle = ([, reject]) => reject(error);
      }
      pause = 0.5;
      this.items.shift();
      this.save();
      if (this.trouble) {
        this.trouble = null;
        this.onchange({ waiting: this.items.length, error: null });
      }
      const promise = this.waiting.get(item.id);
      this.waiting.delete(item.id);
      if (promise) settle(promise);
    }
    this.running = null;
  }
}

export const outbox = new Outbox();
export const post = (path, body, name) => outbox.send(path, body, name);
