// Text and its words. The server counts code points, JavaScript counts UTF-16 units.

const RTL = /[\u0590-\u08FF\uFB1D-\uFDFF\uFE70-\uFEFF\u{10800}-\u{10FFF}\u{1E800}-\u{1EFFF}]/u;
const STRONG = /\p{L}/u;

/** Direction of the first letter, as browsers do for dir="auto", for keys that follow the reading direction. */
export function direction(text) {
  const first = STRONG.exec(text);
  return first && RTL.test(first[0]) ? "rtl" : "ltr";
}

/** A function that cuts text by code points. */
export function cutter(text) {
  if (!/[\uD800-\uDBFF]/.test(text)) return (start, end) => text.slice(start, end);
  const at = [0];
  for (const character of text) at.push(at[at.length - 1] + character.length);
  const place = (i) => at[Math.min(Math.max(i, 0), at.length - 1)];
  return (start, end) => text.slice(place(start), end === undefined ? undefined : place(end));
}

/** The words of tokens start to end (exclusive), with what lies between them. */
export const phrase = (text, tokens, start, end) => cutter(text)(tokens[start][0], tokens[end - 1][1]);

export const overlap = (a, b) => a.start < b.end && b.start < a.end;

/** Spans with one more; what it overlaps goes. */
export const withSpan = (spans, span) =>
  [...spans.filter((other) => !overlap(other, span)), span].sort((a, b) => a.start - b.start);

/** What is left of a span beside another: its longer end, or null. */
export function without(span, other) {
  if (!overlap(span, other)) return span;
  const before = other.start - span.start;
  const after = span.end - other.end;
  if (before <= 0 && after <= 0) return null;
  return before >= after ? { ...span, end: other.start } : { ...span, start: other.end };
}

/** Whether two lists name the same labelled spans. */
export function sameSpans(a, b) {
  const text = (spans) =>
    spans
      .filter((s) => s.label !== null)
      .map((s) => `${s.start} ${s.end} ${s.label}`)
      .sort()
      .join("\n");
  return text(a) === text(b);
}

/** Ranges [start, end] sorted and joined where they touch. */
export function joined(ranges) {
  const out = [];
  for (const [start, end] of [...ranges].sort((a, b) => a[0] - b[0])) {
    const last = out[out.length - 1];
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else out.push([start, end]);
  }
  return out;
}

/** What is known of a sentence, out of one label per token: "B-PER", "I-PER", "O" in span tasks, null if unknown. */
export function knownSpans(known, task) {
  const out = [];
  (known ?? []).forEach((label, t) => {
    if (label === null || (task === "spans" && label === "O")) return;
    const last = out[out.length - 1];
    const name = task === "spans" ? label.slice(2) : label;
    const goesOn = task === "spans" && label.startsWith("I-") && last?.end === t && last.label === name;
    if (goesOn) last.end = t + 1;
    else out.push({ start: t, end: t + 1, label: name });
  });
  return out;
}
