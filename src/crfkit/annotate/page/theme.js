// Runs before the first paint, so that a dark page never flashes white.
"use strict";
{
  const saved = localStorage.getItem("crfkit-theme");
  if (saved === "light" || saved === "dark") document.documentElement.dataset.theme = saved;
}
