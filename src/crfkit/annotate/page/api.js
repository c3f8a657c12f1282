// The server, and the outbox in which a write waits until the server has acknowledged it.

export class ApiError extends Error {
  constructor(message, status, other = false) {
    super(message);
    this.status = status;
    this.other = other; // whether the server has another project than this page
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

let mine; // the project of this page, once the server has said it: all requests are for this one

export const belong = (project) => {
  mine = project;
  for (const item of outbox.items) item.project ??= mine; // from a page that did not name it
};

async function request(path, body) {
  const headers = mine ? { "Crfkit-Project": mine } : {};
  const options = { credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(60000), headers };
  if (body !== undefined) {
    options.method = "POST";
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(path, options);
  } catch {
    throw new ApiError("The server does not answer.", 0);
  }
  const data = await reply.json().catch(() => ({}));
  if (!reply.ok) {
    const other = reply.status === 409 && "project_id" in data;
    throw new ApiError(data.error ?? `The server answered ${reply.status}.`, reply.status, other);
  }
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

/** Whether a request that failed may succeed later. */
export const later = ({ status, other }) => other || [0, 401, 408, 429].includes(status) || status >= 500;

/**
 * Writes, one after another, each with a key of its own, sent again until the server has acknowledged it.
 * What waits lies in sessionStorage too, so that a reload sends it; the key makes a second arrival harmless.
 * Another project may be served at the same address next: what waits is kept for its own.
 */
class Outbox {
  constructor() {
    this.items = JSON.parse(sessionStorage.getItem(STORE) ?? "[]");
    this.waiting = new Map(); // id of an item: [resolve, reject]
    this.running = null; // a promise while something is under way
    this.onchange = () => {}; // gets {waiting, error, again: seconds}
    this.onrefused = () => {}; // gets the error of what an earlier page left
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
    const last = this.ours.length > 1 ? this.ours.pop() : null; // the first is under way
    if (path === DRAFT && last?.path === DRAFT) this.forget(last); // a newer one replaces it
    this.items.push({ id, path, body: name ? { ...body, [name]: id } : body, project: mine });
    this.save();
    const promise = new Promise((...settle) => this.waiting.set(id, settle));
    this.flush();
    return promise;
  }

  /** Sends all that waits for this project, also what an earlier page left; drain() forgets itself when it ends. */
  flush() {
    if (!this.running && this.ours.length) this.running = this.drain();
    return this.running;
  }

  /** What waits for the project of this page. */
  get ours() {
    return this.items.filter((item) => item.project === mine);
  }

  forget(item) {
    this.items.splice(this.items.indexOf(item), 1);
    this.waiting.delete(item.id);
  }

  async drain() {
    let pause = 0.5;
    while (this.ours.length) {
      const [item] = this.ours;
      let settle;
      try {
        const reply = await request(item.path, item.body);
        settle = ([resolve]) => resolve(reply);
      } catch (error) {
        if (later(error)) {
          this.trouble = error;
          this.onchange({ waiting: this.ours.length, error, again: pause });
          await new Promise((go) => {
            this.wake = go;
            setTimeout(go, 1000 * pause);
          });
          pause = Math.min(2 * pause, 5);
          continue;
        }
        settle = ([, reject]) => reject(error);
        if (!this.waiting.has(item.id)) this.onrefused(error);
      }
      pause = 0.5;
      const promise = this.waiting.get(item.id);
      this.forget(item);
      this.save();
      if (this.trouble) {
        this.trouble = null;
        this.onchange({ waiting: this.ours.length, error: null });
      }
      if (promise) settle(promise);
    }
    this.running = null;
  }
}

export const outbox = new Outbox();
export const post = (path, body, name) => outbox.send(path, body, name);
