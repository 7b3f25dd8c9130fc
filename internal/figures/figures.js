// The figures of a page: package figures tells what they carry. All state is in the address, as in
// #hide=replay&log=kl&smooth=3&at=kl, and the drawing is made from it.
(() => {
  "use strict";
  const smoothings = [["", "as drawn"], ["1", "1% of the axis"], ["3", "3% of the axis"], ["10", "10% of the axis"]];
  let figures = [], state = { hide: new Set(), log: new Set(), smooth: "", at: "" };
  let reading = null; // the place that is read: a figure's id, the number of its drawing, x, and whether by keys

  // State.

  function readAddress() {
    const p = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    const smooth = p.get("smooth") || "";
    state = { hide: new Set(p.getAll("hide")), log: new Set(p.getAll("log")), at: p.get("at") || "",
      smooth: smoothings.some(([value]) => value === smooth) ? smooth : "" };
  }

  function address(at) {
    const p = new URLSearchParams();
    for (const arm of state.hide) p.append("hide", arm);
    for (const id of state.log) p.append("log", id);
    if (state.smooth) p.set("smooth", state.smooth);
    if (at) p.set("at", at);
    return location.href.split("#")[0] + (p.size ? "#" + p : "");
  }

  function change(set, value) {
    if (!set.delete(value)) set.add(value);
    changed();
  }

  function changed() {
    history.replaceState(null, "", address(state.at));
    show();
  }

  function show() {
    for (const button of document.querySelectorAll("button.arm"))
      button.setAttribute("aria-pressed", String(!state.hide.has(button.dataset.arm)));
    for (const select of document.querySelectorAll(".smoothing select")) select.value = state.smooth;
    for (const figure of figures) draw(figure);
    if (reading) read(reading);
  }

  // Geometry.

  const share = (axis, v) => axis.log ? Math.log(v / axis.low) / Math.log(axis.high / axis.low) :
    (v - axis.low) / (axis.high - axis.low);
  const value = (axis, s) => axis.log ? axis.low * (axis.high / axis.low) ** s : axis.low + s * (axis.high - axis.low);
  const across = (f, area, x) => area[0] + share(f.data.x, x) * (area[2] - area[0]);
  const down = (axis, area, y) => area[3] - share(axis, y) * (area[3] - area[1]);
  const drawable = (axis, y) => y !== null && !(axis.log && y <= 0);
  const round = (v) => Math.round(v * 10) / 10;

  // logAxis is the logarithmic axis of y, or null where it makes no sense: with values below 0, or all of one size.
  function logAxis(data) {
    if (data.y.log || !data.curves || data.labels) return null;
    const ys = data.curves.flatMap((c) => c.y).filter((y) => y !== null), above = ys.filter((y) => y > 0);
    above.sort((a, b) => a - b);
    const low = above[Math.floor(above.length / 100)], high = above[above.length - 1];
    if (ys.some((y) => y < 0) || above.length < 0.8 * ys.length || above.length < 3 || high < 8 * low) return null;
    const room = (high / low) ** 0.05;
    return { title: data.y.title, low: low / room, high: high * room, log: true };
  }

  function logTicks(axis) {
    let ticks = [];
    for (const steps of [[1, 2, 5], [1, 3], [1]]) {
      ticks = [];
      for (let p = Math.floor(Math.log10(axis.low)); p <= Math.log10(axis.high); p++)
        for (const step of steps) ticks.push(Number((step * 10 ** p).toPrecision(3)));
      ticks = ticks.filter((v) => v >= axis.low && v <= axis.high);
      if (ticks.length <= 7) return ticks;
    }
    const every = Math.ceil(ticks.length / 6);
    return ticks.filter((_, i) => i % every === 0);
  }

  // smoothed returns the moving average of a curve with exponential weights, which halve over a share of the axis. A
  // point counts as much as what it is the mean of: the way from the point before.
  function smoothed(f, curve) {
    if (state.smooth === "" || !f.data.noisy || curve.thin || curve.apart) return curve;
    const half = Number(state.smooth) / 100;
    let sum = 0, weight = 0, before = share(f.data.x, curve.x[0]);
    const y = (curve.mean || curve.y).map((v, i) => {
      if (v === null) return null;
      const at = share(f.data.x, curve.x[i]), kept = 2 ** (-(at - before) / half);
      const counts = at - before || share(f.data.x, curve.x[1] ?? curve.x[0]) - at || 1;
      [sum, weight, before] = [sum * kept + v * counts, weight * kept + counts, at];
      return sum / weight;
    });
    return { ...curve, y, low: null };
  }

  // nearest returns the place in an ascending list that is nearest to a value.
  function nearest(list, v) {
    let low = 0, high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle] < v) low = middle; else high = middle;
    }
    return v - list[low] <= list[high] - v ? low : high;
  }

  // Drawing: the paths that are there get other coordinates, or their own back.

  function draw(f) {
    const axis = state.log.has(f.id) && f.log || f.data.y;
    const changed = axis !== f.data.y || state.smooth !== "" && f.data.noisy;
    f.axis = axis;
    f.curves = (f.data.curves || []).map((c) => smoothed(f, c));
    if (f.button) f.button.setAttribute("aria-pressed", String(axis !== f.data.y));
    for (const d of f.drawings) {
      for (const { node, part, n, path } of d.parts) {
        const arm = "lbmw".includes(part) ? f.data.curves[n].arm : part === "r" ? f.data.marks[n].arm : "";
        node.classList.toggle("off", Boolean(arm) && state.hide.has(arm));
        if (part === "n") node.style.display = axis === f.data.y ? "" : "none";
        if ("gr".includes(part)) {
          const { y } = (part === "g" ? f.data.guides : f.data.marks)[n];
          const by = y === null || axis === f.data.y ? 0 : down(axis, d.area, y) - down(f.data.y, d.area, y);
          node.style.display = y !== null && axis.log && !f.data.y.log && y < axis.low ? "none" : "";
          node.style.translate = by ? "0 " + round(by) + "px" : "";
        }
        if (path && "lbmwh".includes(part)) node.setAttribute("d", changed ? redrawn(f, d, part, n, path) : path);
      }
      ticks(f, d);
    }
  }

  function redrawn(f, d, part, n, path) {
    if (part === "h")
      return f.axis === f.data.y ? path : logTicks(f.axis).map((y) =>
        "M" + d.area[0] + "," + round(down(f.axis, d.area, y)) + "H" + d.area[2]).join("");
    const own = f.data.curves[n], curve = f.curves[n];
    const at = (c, i, ys) => round(across(f, d.area, c.x[i])) + "," +
      round(down(f.axis, d.area, f.axis.log ? Math.max(ys[i], f.axis.low) : ys[i]));
    if (part === "l") {
      let text = "", pen = "M";
      curve.y.forEach((y, i) => {
        if (!drawable(f.axis, y)) { pen = "M"; return; }
        text += pen + round(across(f, d.area, curve.x[i])) + "," + round(down(f.axis, d.area, y));
        pen = "L";
      });
      return text;
    }
    if (part === "m") // each marker moves with its point
      return path.replace(/M(-?[\d.]+) ?(-?[\d.]+)([^M]*)/g, (whole, x, y, shape) => {
        const i = nearest(own.x.map((v) => across(f, d.area, v)), Number(x));
        if (!drawable(f.axis, own.y[i])) return "";
        const by = down(f.axis, d.area, own.y[i]) - down(f.data.y, d.area, own.y[i]);
        return "M" + x + " " + round(Number(y) + by) + shape;
      });
    if (f.curves[n].low === null) return ""; // a smoothed curve has no spread
    const known = own.low ? own.low.map((v, i) => i).filter((i) => own.low[i] !== null) : [];
    if (part === "w") return known.map((i) => "M" + at(own, i, own.low) + "L" + at(own, i, own.high)).join("");
    return runs(known).map((run) => "M" + run.map((i) => at(own, i, own.low)).join("L") + "L" +
      run.toReversed().map((i) => at(own, i, own.high)).join("L") + "Z").join("");
  }

  // runs splits ascending numbers where one is left out.
  function runs(list) {
    const out = [];
    for (const i of list) {
      if (out.length && out.at(-1).at(-1) === i - 1) out.at(-1).push(i); else out.push([i]);
    }
    return out;
  }

  function ticks(f, d) {
    d.labels.replaceChildren();
    if (f.axis === f.data.y) return;
    for (const y of logTicks(f.axis))
      svgNode(d.labels, "text", { x: d.area[0] - 6, y: round(down(f.axis, d.area, y) + 3.5), "text-anchor": "end" })
        .textContent = number(y, 3);
  }

  function svgNode(parent, name, attributes) {
    const node = document.createElementNS(parent.namespaceURI, name);
    for (const [key, v] of Object.entries(attributes)) node.setAttribute(key, v);
    return parent.appendChild(node);
  }

  // Reading values.

  function number(v, digits = 5) {
    if (v !== 0 && (Math.abs(v) < 1e-4 || Math.abs(v) >= 1e9)) {
      return String(Number(v.toPrecision(3))).replace("-", "−");
    }
    return v.toLocaleString("en", { maximumSignificantDigits: digits }).replace("-", "−");
  }

  const visible = (f) => f.curves.filter((c) => c.x.length && !state.hide.has(c.arm));

  // shown returns the curves whose values are read: those of an arm that are not thin, or else all of it.
  function shown(f) {
    const all = visible(f), thick = new Set(all.filter((c) => !c.thin).map((c) => c.arm));
    return all.filter((c) => !c.thin || !thick.has(c.arm));
  }

  function stops(f) {
    return [...new Set(shown(f).flatMap((c) => c.x.filter((_, i) => c.y[i] !== null)))].sort((a, b) => a - b);
  }

  // read shows the values at a place: { id, drawing, x } on a chart, { id, drawing, row, column } on a map.
  function read(place) {
    close();
    const f = figures.find((one) => one.id === place.id), d = f && f.drawings[place.drawing];
    if (!d) return;
    const tip = f.element.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
    tip.setAttribute("role", "status");
    const at = f.data.cells ? readCell(f, d, place, tip) : readCurves(f, d, place, tip);
    if (at === null) { close(); return; }
    const box = d.svg.getBoundingClientRect(), outer = f.element.getBoundingClientRect();
    const x = box.left - outer.left + at * box.width / d.svg.viewBox.baseVal.width;
    const right = x + 14 + tip.offsetWidth <= Math.min(outer.width, document.documentElement.clientWidth - outer.left);
    tip.style.left = Math.max(0, right ? x + 14 : x - 14 - tip.offsetWidth) + "px";
    const cells = f.data.cells?.box;
    const below = cells ? cells[1] + (place.row + 1) * cells[3] : 15;
    tip.style.top = box.top - outer.top + below * box.height / d.svg.viewBox.baseVal.height + 7 + "px";
  }

  function readCurves(f, d, place, tip) {
    const all = stops(f);
    if (!all.length) return null;
    const x = all[nearest(all, place.x)], left = across(f, d.area, x);
    heading(tip, ...(f.data.labels ? [f.data.labels[x], ""] : [f.data.x.title, number(x, 10)]));
    svgNode(d.group, "path", { class: "hair", d: "M" + round(left) + "," + d.area[1] + "V" + d.area[3] });
    if (f.data.labels) return left;
    const rows = shown(f).map((c) => {
      const known = c.x.map((_, i) => i).filter((i) => c.y[i] !== null);
      return { c, i: known[nearest(known.map((i) => c.x[i]), x)] };
    }).filter(({ i }) => i !== undefined).sort((a, b) => b.c.y[b.i] - a.c.y[a.i]);
    const table = tip.appendChild(document.createElement("table")), most = 12;
    for (const { c, i } of rows.slice(0, most)) {
      const more = [], y = c.y[i], off = Math.abs(share(f.data.x, c.x[i]) - share(f.data.x, x)) > 0.01;
      if (c.low && c.low[i] !== null && c.high[i] > c.low[i]) {
        more.push(number(c.low[i], 3) + "–" + number(c.high[i], 3));
      }
      const raw = f.data.curves.filter((o) => o.thin && !c.thin && o.arm === c.arm)
        .map((o) => o.y[nearest(o.x, c.x[i])])
        .filter((v) => v !== undefined && v !== null);
      if (raw.length === 1 && f.data.noisy) more.push("raw " + number(raw[0], 4));
      if (raw.length > 1 && !more.length) more.push(number(Math.min(...raw), 3) + "–" + number(Math.max(...raw), 3));
      if (off) more.push("at " + number(c.x[i], 10));
      row(table, c, number(y), more.join(", "));
      const top = down(f.axis, d.area, y);
      if (drawable(f.axis, y) && top >= d.area[1] - 1 && top <= d.area[3] + 1)
        svgNode(d.group, "circle", { class: "dot", cx: round(across(f, d.area, c.x[i])), cy: round(top),
          r: 3.2 }).style.fill = "var(--" + c.colour + ")";
    }
    if (rows.length > most) heading(tip, "and", rows.length - most + " more");
    return left;
  }

  function readCell(f, d, place, tip) {
    const { columns, rows, values, box } = f.data.cells, v = (values[place.row] || [])[place.column];
    if (v === undefined) return null;
    heading(tip, f.data.x.title, columns[place.column]);
    heading(tip, f.data.y.title, rows[place.row]);
    tip.appendChild(document.createElement("b")).textContent = v === null ? "no value" : number(v);
    const [left, top] = [box[0] + place.column * box[2], box[1] + place.row * box[3]];
    svgNode(d.group, "path",
      { class: "hair", d: "M" + left + "," + top + "h" + box[2] + "v" + box[3] + "h" + -box[2] + "Z" });
    return left + box[2];
  }

  function heading(tip, name, text) {
    tip.appendChild(document.createElement("p")).textContent = text ? name.split(":")[0] + " " + text : name;
  }

  function row(table, c, text, more) {
    const cells = table.insertRow(), name = cells.insertCell();
    name.appendChild(document.createElement("i")).style.background = "var(--" + c.colour + ")";
    name.append(c.name || c.arm);
    cells.insertCell().textContent = text;
    cells.insertCell().appendChild(document.createElement("small")).textContent = more;
  }

  function close() {
    for (const node of document.querySelectorAll(".tip, .hair, .dot")) node.remove();
  }

  function pointed(f, d, drawing, event) {
    const box = d.svg.getBoundingClientRect(), view = d.svg.viewBox.baseVal;
    const x = (event.clientX - box.left) / box.width * view.width;
    const y = (event.clientY - box.top) / box.height * view.height;
    if (f.data.cells) {
      const [left, top, width, height] = f.data.cells.box;
      reading = { id: f.id, drawing, column: Math.floor((x - left) / width), row: Math.floor((y - top) / height) };
    } else
      reading = { id: f.id, drawing, x: value(f.data.x, (x - d.area[0]) / (d.area[2] - d.area[0])) };
    read(reading);
  }

  function pressed(f, drawing, event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0],
      End: [1e9, 0] }[event.key];
    const here = reading && reading.id === f.id ? reading : null;
    if (event.key === "Escape") { reading = null; close(); return; }
    if (!by || !f.data.cells && !by[0]) return;
    event.preventDefault();
    const step = (from, count, n) => Math.min(n - 1, Math.max(0, from + count));
    if (f.data.cells) {
      const { columns, rows } = f.data.cells;
      reading = here ?
        { ...here, column: step(here.column, by[0], columns.length), row: step(here.row, by[1], rows.length) } :
        { id: f.id, drawing, column: 0, row: 0 };
    } else {
      const all = stops(f), from = here ? nearest(all, here.x) : by[0] > 0 ? -1 : all.length;
      reading = { id: f.id, drawing, x: all[step(from, by[0], all.length)] };
    }
    reading = { ...reading, drawing, keys: true };
    read(reading);
  }

  // The points as text.

  function csv(f) {
    const quoted = (v) => /[",\n]/.test(v) ? '"' + String(v).replaceAll('"', '""') + '"' : v;
    const cell = (v) => v === null || v === undefined ? "" : quoted(v);
    const lines = [];
    if (f.data.cells) {
      lines.push(["row", "column", "value"]);
      f.data.cells.values.forEach((list, i) => list.forEach((v, j) =>
        lines.push([f.data.cells.rows[i], f.data.cells.columns[j], v])));
    } else {
      lines.push(["curve", f.data.x.title, f.data.y.title, "low", "high"]);
      const count = {};
      for (const c of f.data.curves) {
        const name = c.name || c.arm, n = c.thin ? count[name] = (count[name] || 0) + 1 : 0;
        c.x.forEach((x, i) => lines.push([n ? name + ", run " + n : name, f.data.labels ? f.data.labels[x] : x, c.y[i],
          c.low?.[i], c.high?.[i]]));
      }
    }
    return lines.map((line) => line.map(cell).join(",") + "\n").join("");
  }

  function download(f) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(f)], { type: "text/csv" }));
    link.download = f.id + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  async function copy(button, text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // not a secure page, or not allowed
      const area = document.body.appendChild(Object.assign(document.createElement("textarea"), { value: text }));
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const name = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = name; }, 1200);
  }

  // Start.

  function button(parent, name, title, act) {
    const b = Object.assign(document.createElement("button"), { type: "button", textContent: name, title });
    b.addEventListener("click", () => act(b));
    return parent.appendChild(b);
  }

  function start() {
    figures = [];
    for (const source of document.querySelectorAll('script[type="application/json"]'))
      figures.push(startFigure(source.parentElement, JSON.parse(source.textContent)));
    for (const name of document.querySelectorAll("span[data-arm]")) {
      const toggle = Object.assign(document.createElement("button"), { type: "button", className: "arm",
        title: "hide or show in all figures" });
      toggle.dataset.arm = name.dataset.arm;
      toggle.append(...name.childNodes);
      toggle.addEventListener("click", () => change(state.hide, toggle.dataset.arm));
      name.replaceWith(toggle);
    }
    for (const command of document.querySelectorAll(".command")) {
      const text = command.textContent;
      button(command, "copy", "copy the text", (b) => copy(b, text)).className = "copy";
    }
    for (const section of document.querySelectorAll("section")) {
      const noisy = figures.find((f) => f.data.noisy && section.contains(f.element));
      if (!noisy) continue;
      const label = document.createElement("label");
      Object.assign(label, { className: "smoothing", textContent: "Smoothing " });
      const select = label.appendChild(document.createElement("select"));
      for (const [v, name] of smoothings) select.add(new Option(name, v));
      select.addEventListener("change", () => { state.smooth = select.value; select.blur(); changed(); });
      noisy.element.parentElement.before(label);
    }
    readAddress();
    const keys = reading && reading.keys && figures.find((f) => f.id === reading.id);
    if (keys) keys.drawings[reading.drawing].svg.focus({ preventScroll: true });
    show();
  }

  function startFigure(element, data) {
    for (const c of data.curves || []) {
      let x = 0;
      c.x = c.x.at instanceof Function ? c.x.map((step) => x += step) : c.x.at;
    }
    const f = { id: element.id, element, data, drawings: [] };
    const caption = element.querySelector("figcaption, h3");
    const tools = Object.assign(document.createElement("span"), { className: "tools" });
    f.log = element.querySelector('[data-p^="n"]') && logAxis(data); // not without labels of the axis
    if (f.log) f.button = button(tools, "log", "logarithmic axis", () => change(state.log, f.id));
    button(tools, "CSV", "download the points", () => download(f));
    button(tools, "link", "copy a link to this figure as it is shown", (b) => copy(b, address(f.id)));
    caption.prepend(tools);
    element.querySelectorAll("svg:not(.icon, .meter)").forEach((svg, drawing) => {
      const title = svg.querySelector(":scope > title");
      const group = svgNode(svg, "g", {});
      const d = { svg, group, area: (data.areas || [])[drawing], parts: [] };
      d.labels = svgNode(group, "g", {});
      for (const node of svg.querySelectorAll("[data-p]")) {
        const part = node.dataset.p[0], n = Number(node.dataset.p.slice(1));
        d.parts.push({ node, part, n, path: node.getAttribute("d") });
      }
      if (d.area) {
        const id = "clip-" + figures.length + "-" + drawing, clip = svgNode(group, "clipPath", { id });
        const [left, top, right, bottom] = d.area;
        svgNode(clip, "rect", { x: left, y: top - 1, width: right - left, height: bottom - top + 2 });
        for (const { node, part } of d.parts) {
          if ("lb".includes(part)) node.setAttribute("clip-path", "url(#" + id + ")");
        }
      }
      if (title) { // the browser would show it over the values
        svg.setAttribute("aria-label", title.textContent);
      }
      for (const shown of svg.querySelectorAll("title")) shown.remove();
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("pointermove", (event) => pointed(f, d, drawing, event));
      svg.addEventListener("pointerdown", (event) => pointed(f, d, drawing, event));
      for (const leave of ["pointerleave", "blur"])
        svg.addEventListener(leave, () => queueMicrotask(() => { // not where the page is being replaced
          if (svg.isConnected) { reading = null; close(); }
        }));
      svg.addEventListener("keydown", (event) => pressed(f, drawing, event));
      f.drawings.push(d);
    });
    return f;
  }

  start();
  if (state.at && document.getElementById(state.at)) document.getElementById(state.at).scrollIntoView();
  addEventListener("hashchange", () => { readAddress(); show(); });
  document.addEventListener("reprise:replaced", start);
})();
