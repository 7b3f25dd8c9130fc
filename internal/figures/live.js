// What pages that replace their content share.

// inUse reports whether the reader would be disturbed: where text or a part of a chart is being marked, a list is open,
// or a field holds what was not sent.
function inUse(element) {
  const list = CSS.supports("selector(:open)") ? "select:open" : "select:focus";
  const typed = [...element.querySelectorAll("input:not([type=checkbox]), textarea")].some((field) =>
    field.value !== field.defaultValue || field === document.activeElement);
  return document.hidden || String(getSelection()) !== "" || typed ||
    element.querySelector(list + ", svg.marking") !== null;
}

// replaceContent puts a new element in place of an old one. It keeps what the reader has opened, ticked, focused and
// scrolled to: details with an id by their id, everything else by its place in the order.
function replaceContent(old, fresh) {
  const places = "summary, a, button, input, select";
  const focused = document.activeElement, folded = focused?.closest("details[id]");
  const at = [...old.querySelectorAll(places)].indexOf(focused);
  const open = Array.from(old.querySelectorAll("details"), (d, i) => d.open && (d.id || i));
  fresh.querySelectorAll("details").forEach((d, i) => { d.open = d.open || open.includes(d.id || i); });
  const boxOf = (i) => i.name + "=" + i.value;
  const ticked = new Set(Array.from(old.querySelectorAll("input:checked"), boxOf));
  for (const i of fresh.querySelectorAll("input[type=checkbox]")) i.checked = ticked.has(boxOf(i));
  const lefts = Array.from(old.querySelectorAll(".scroll"), (s) => s.scrollLeft);
  old.replaceWith(fresh);
  document.dispatchEvent(new Event("reprise:replaced")); // the figures' script puts its buttons back
  fresh.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = lefts[i] || 0; });
  const again = folded ? document.getElementById(folded.id)?.querySelector("summary") :
    fresh.querySelectorAll(places)[at];
  if (at >= 0) again?.focus({ preventScroll: true });
}
