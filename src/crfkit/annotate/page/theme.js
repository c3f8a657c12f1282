// Runs before the first paint, so that a dark page never flashes white.
"use strict";
{
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = () => {
    const saved = localStorage.getItem("crfkit-theme");
    const known = saved === "light" || saved === "dark";
    document.documentElement.dataset.theme = known ? saved : system.matches ? "dark" : "light";
  };
  show();
  system.addEventListener("change", show);
}
