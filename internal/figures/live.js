// What pages that replace their content share.

// inUse reports whether the reader would be disturbed: by text that is marked, or an open list.
function inUse(element) {
  const list = CSS.supports("selector(:open)") ? "select:open" : "select:focus";
  return document.hidden || String(getSelection()) !== "" || element.querySelector(list) !== null;
}

// replaceContent puts a new element in place of an old one. It keeps what the reader has opened, ticked, focused and
// scrolled to: details with an id by their id, everything else by its place in the order.
function replaceContent(old, fresh) {
  const places = "summary, a, button, input, select";
  const focused = document.activeElement, folded = focused?.closest("details[id]");
  const at = [...old.querySelectorAll(places)].indexOf(focused);
  const open = Array.from(old.querySelectorAll("details"), (d, i) => d.open && (d.id || i));
  fresh.querySelectorAll("details").forEach((d, i) => { d.open = d.open || open.includes(d.id || i); });
  const ticked = new Set(Array.from(old.querySelectorAll("input:checked"), (i) => i.value));
  for (const i of fresh.querySelectorAll("input")) i.checked = ticked.has(i.value);
  const lefts = Array.from(old.querySelectorAll(".scroll"), (s) => s.scrollLeft);
  old.replaceWith(fresh);
  document.dispatchEvent(new Event("reprise:replaced")); // the figures' script puts its buttons back
  fresh.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = lefts[i] || 0; });
  const again = folded ? document.getElementById(folded.id)?.querySelector("summary") :
    fresh.querySelectorAll(places)[at];
  if (at >= 0) again?.focus({ preventScroll: true });
}
