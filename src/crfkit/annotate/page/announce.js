// Messages: to a screen reader (announce), to everybody for a moment (toast).

let flip = false;

/** Says a line; a mark that is not pronounced makes equal lines differ, so that both are said. */
export function announce(text) {
  flip = !flip;
  document.getElementById("polite").textContent = text + (flip ? "\u00a0" : "");
}

let timer;

export function toast(text, bad = false) {
  const node = document.getElementById("toast");
  node.textContent = text;
  node.className = bad ? "shown bad" : "shown";
  clearTimeout(timer);
  timer = setTimeout(() => (node.className = ""), bad ? 8000 : 3500);
}
