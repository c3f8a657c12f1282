// Several tabs of one person: each tells the others when something was saved.

const channel = "BroadcastChannel" in self ? new BroadcastChannel("crfkit-annotate") : null;

export const tell = (event) => channel?.postMessage({ event });

export function onOtherTab(f) {
  if (channel) channel.onmessage = f;
}
