// The figures of a page: package figures tells what they carry. All state is in the address, as in
// #hide=replay&log=kl&zoom=100,200,updates&by=clock&seeds=mean&smooth=3&at=kl, and the drawing is made from it.
(() => {
  "use strict";
  const { share, value, drawable, part, nearest, around, along, fitted, smoothed, unpacked } = axes;
  let figures = [], measures = { names: [], titles: [], runs: [] };
  let state = { hide: new Set(), log: new Set(), zoom: new Map(), at: "" }; // and a value for each of choices
  let reading = null; // the place that is read: a figure's id, the number of its drawing, x, and whether by keys
  let drag = null; // the part of the axis of x that is being marked: the drawing, from and to in its own units

  // choices returns what the reader may choose for all figures: key, name, values with their names, and which figures
  // it changes.
  const choices = () => [
    ["by", "x axis", [["", "as drawn"], ...measures.names.map((name) => [name, name])], (f) => f.switchable],
    ["seeds", "Seeds", [["", "single runs and median"], ["mean", "mean ± standard deviation"],
      ["runs", "single runs"]], (f) => f.several.size > 0],
    ["smooth", "Smoothing", [["", "as drawn"], ["1", "1% of the axis"], ["3", "3% of the axis"],
      ["10", "10% of the axis"]], (f) => f.data.noisy],
  ];

  // State.

  function readAddress() {
    const p = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    state = { hide: new Set(p.getAll("hide")), log: new Set(p.getAll("log")), zoom: new Map(), at: p.get("at") || "" };
    for (const [key, , values] of choices())
      state[key] = values.some(([v]) => v === p.get(key)) ? p.get(key) : "";
    for (const text of p.getAll("zoom")) {
      const [low, high, ...key] = text.split(",");
      if (Number(low) < Number(high)) state.zoom.set(key.join(","), [Number(low), Number(high)]);
    }
  }

  function address(at) {
    const p = new URLSearchParams();
    for (const arm of state.hide) p.append("hide", arm);
    for (const id of state.log) p.append("log", id);
    for (const [key, [low, high]] of state.zoom) p.append("zoom", [low, high, key].join());
    for (const [key] of choices()) if (state[key]) p.set(key, state[key]);
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
    for (const select of document.querySelectorAll(".choices select")) select.value = state[select.name];
    for (const figure of figures) draw(figure);
    if (reading) read(reading);
  }

  // What a figure shows: its axes and curves, from the state.

  function view(f) {
    const own = (f.data.x.measure || 0) - 1, by = f.switchable && state.by ? measures.names.indexOf(state.by) : own;
    const over = by !== own;
    f.key = by < 0 ? f.data.x.title : measures.names[by]; // figures of one key are zoomed and read together
    f.place = (x, run) => over ? along(measures.runs[run - 1][own], measures.runs[run - 1][by], x) : x;
    f.plain = f.data.curves.map((c) => grouped(f, over ? { ...c, x: c.x.map((x) => f.place(x, c.run)) } : c));
    f.whole = f.x = f.data.x;
    if (over) {
      const xs = f.plain.flatMap((c) => c.x);
      f.whole = { title: measures.titles[by], low: f.data.x.low === 0 ? 0 : Math.min(...xs), high: Math.max(...xs) };
    }
    const zoom = state.zoom.get(f.key);
    f.zoomed = f.zoomable && zoom !== undefined && zoom[0] < f.whole.high && zoom[1] > f.whole.low &&
      !(f.whole.log && zoom[0] <= 0);
    f.x = f.zoomed ? { ...f.whole, low: zoom[0], high: zoom[1] } : f.whole;
    f.curves = f.plain.map((c) => state.smooth === "" || !f.data.noisy || c.apart || c.thin && !c.alone ? c :
      smoothed(f.whole, c, Number(state.smooth) / 100));
    const other = f.zoomed || state.seeds !== "" && f.several.size > 0;
    const log = f.data.y.log || state.log.has(f.id) && f.log;
    f.axis = other ? fitted(f.data.y, inView(f), log) || f.data.y : log && f.log || f.data.y;
    f.changed = over || other || f.axis !== f.data.y || state.smooth !== "" && f.data.noisy;
    f.stops = null;
  }

  // grouped returns a curve as the seeds are shown. Those that are not are off.
  function grouped(f, c) {
    if (!state.seeds || !f.several.has(c.arm)) return c;
    if (state.seeds === "runs") return c.thin ? { ...c, alone: true } : { ...c, off: true };
    if (c.thin) return { ...c, off: true };
    const beside = (by) => c.avg.map((v, i) => v === null || c.dev[i] === null ? null : v + by * c.dev[i]);
    return { ...c, y: c.avg, mean: c.avg, low: beside(-1), high: beside(1) };
  }

  const visible = (f) => f.curves.filter((c) => c.x.length && !c.off && !state.hide.has(c.arm));

  const inside = (f, x) => x >= f.x.low && x <= f.x.high;

  // inView returns the values that are to be seen between the ends of x, and where lines cross these.
  function inView(f) {
    const cut = (c, x) => {
      const [i, j] = around(c.x, x);
      return c.x[i] < x && x < c.x[j] && c.y[i] !== null && c.y[j] !== null ? along(c.x, c.y, x) : null;
    };
    return visible(f).flatMap((c) => [cut(c, f.x.low), cut(c, f.x.high),
      ...c.x.flatMap((x, i) => inside(f, x) ? [c.y[i], c.low?.[i], c.high?.[i]] : [])])
      .filter((y) => y !== null && y !== undefined);
  }

  // zoomTo shows a part of the axis of x, in all figures of this axis. All of it, or next to nothing, is no part.
  function zoomTo(f, { low, high }) {
    low = Math.max(low, f.whole.low);
    high = Math.min(high, f.whole.high);
    const length = share(f.whole, high) - share(f.whole, low);
    if (!(length > 1e-4)) return;
    state.zoom.delete(f.key);
    if (length < 0.999) state.zoom.set(f.key, [low, high].map((v) => Number(v.toPrecision(7))));
    changed();
  }

  // zoomBy shows a part of what is shown, or more than it, moved to within the axis.
  function zoomBy(f, from, to) {
    const [low, high] = [from, to].map((at) => share(f.whole, value(f.x, at)));
    const by = low < 0 ? -low : Math.min(0, 1 - high);
    zoomTo(f, part(f.whole, low + by, high + by));
  }

  function zoomOut(f) {
    if (state.zoom.delete(f.key)) changed();
  }

  // Drawing: the paths that are there get other coordinates, or their own back.

  const round = (v) => Math.round(Math.max(-1e5, Math.min(1e5, v)) * 10) / 10;
  const across = (axis, area, x) => area[0] + share(axis, x) * (area[2] - area[0]);
  const down = (axis, area, y) => area[3] - share(axis, y) * (area[3] - area[1]);
  const xTicks = (f, area) => axes.ticks(f.x, Math.max(2, (area[2] - area[0]) / 64), f.whole.whole);
  const yTicks = (f, area) => axes.ticks(f.axis, Math.max(2, (area[3] - area[1]) / 36));

  function draw(f) {
    if (f.data.cells) return;
    view(f);
    if (f.button) f.button.setAttribute("aria-pressed", String(f.axis.log === true));
    f.reset.hidden = !f.zoomed;
    f.element.classList.toggle("zoomed", f.zoomed);
    f.caption.data = f.whole === f.data.x ? f.title : f.title.replace(/ against .*/, " against " + state.by);
    for (const d of f.drawings) {
      for (const p of d.parts) drawPart(f, d, p);
      drawTicks(f, d);
    }
  }

  function drawPart(f, d, { node, part, n, path, text }) {
    if ("lbmwv".includes(part)) {
      const c = f.plain[n];
      node.classList.toggle("off", Boolean(c.off) || state.hide.has(c.arm));
      if (c.thin) node.classList.toggle("thin", !c.alone);
    }
    if (part === "n") node.style.display = f.axis === f.data.y ? "" : "none";
    if (part === "u") node.style.display = f.x === f.data.x ? "" : "none";
    if (part === "t") node.textContent = f.whole === f.data.x ? text : f.x.title;
    if ("gr".includes(part)) move(f, d, part === "g" ? f.data.guides[n] : f.data.marks[n], node);
    if (path !== null && "lbmwvh".includes(part))
      node.setAttribute("d", f.changed ? redrawn(f, d, part, n, path) : path);
  }

  // move moves a guide or a mark with its name, and hides it outside the axes.
  function move(f, d, { x, y, run, arm }, node) {
    const at = x === null ? null : f.place(x, run);
    const stale = f.whole !== f.data.x && /^\d/.test(node.textContent); // a name that is the x of before
    const beyond = at !== null && !inside(f, at) || y !== null && !(y >= f.axis.low && y <= f.axis.high);
    const out = stale || f.changed && beyond;
    node.classList.toggle("off", arm !== undefined && state.hide.has(arm));
    node.style.display = out ? "none" : "";
    const right = at === null ? 0 : across(f.x, d.area, at) - across(f.data.x, d.area, x);
    const by = y === null ? 0 : down(f.axis, d.area, y) - down(f.data.y, d.area, y);
    node.style.translate = f.changed && !out ? round(right) + "px " + round(by) + "px" : "";
  }

  function redrawn(f, d, part, n, path) {
    if (part === "h") {
      return f.axis === f.data.y ? path : yTicks(f, d.area).map((y) =>
        "M" + d.area[0] + "," + round(down(f.axis, d.area, y)) + "H" + d.area[2]).join("");
    }
    const own = f.data.curves[n], c = f.plain[n];
    const at = (i, ys) => round(across(f.x, d.area, c.x[i])) + "," +
      round(down(f.axis, d.area, f.axis.log ? Math.max(ys[i], f.axis.low) : ys[i]));
    if (part === "l") return line(f, d, f.curves[n]);
    if (part === "m") { // each marker moves with its point
      const places = own.x.map((v) => across(f.data.x, d.area, v));
      return path.replace(/M(-?[\d.]+) ?(-?[\d.]+)([^M]*)/g, (whole, x, y, shape) => {
        const i = nearest(places, Number(x));
        return drawable(f.axis, c.y[i]) && inside(f, c.x[i]) ? "M" + at(i, c.y).replace(",", " ") + shape : "";
      });
    }
    const mean = state.seeds === "mean" && c.avg !== undefined;
    if (mean !== (part === "v") || f.curves[n].low === null) return ""; // a smoothed curve has no spread
    const low = own.filled ? own.y.map((y) => y === null ? null : f.axis.low) : c.low, high = own.filled ? c.y : c.high;
    const known = low ? low.map((v, i) => i).filter((i) => low[i] !== null && high[i] !== null) : [];
    if (part === "w")
      return known.filter((i) => inside(f, c.x[i])).map((i) => "M" + at(i, low) + "L" + at(i, high)).join("");
    return runs(known).map((run) => "M" + run.map((i) => at(i, low)).join("L") + "L" +
      run.toReversed().map((i) => at(i, high)).join("L") + "Z").join("");
  }

  function line(f, d, curve) {
    let text = "", pen = "M";
    curve.y.forEach((y, i) => {
      if (!drawable(f.axis, y)) { pen = "M"; return; }
      text += pen + round(across(f.x, d.area, curve.x[i])) + "," + round(down(f.axis, d.area, y));
      pen = "L";
    });
    return text;
  }

  // runs splits ascending numbers where one is left out.
  function runs(list) {
    const out = [];
    for (const i of list) {
      if (out.length && out.at(-1).at(-1) === i - 1) out.at(-1).push(i); else out.push([i]);
    }
    return out;
  }

  function drawTicks(f, d) {
    d.labels.replaceChildren();
    const label = (axis, v, place) => {
      const [unit, suffix] = axis.percent ? [0.01, "%"] : Math.abs(v) >= 1e6 ? [1e6, "M"] :
        Math.abs(v) >= 1e4 ? [1e3, "k"] : [1, ""];
      svgNode(d.labels, "text", place).textContent = number(v / unit, 6) + suffix;
    };
    if (f.axis !== f.data.y && d.named)
      for (const y of yTicks(f, d.area))
        label(f.axis, y, { x: d.area[0] - 6, y: round(down(f.axis, d.area, y) + 3.5), "text-anchor": "end" });
    if (f.x === f.data.x || !d.named) return;
    for (const x of xTicks(f, d.area)) {
      const at = round(across(f.x, d.area, x));
      label(f.x, x, { x: at, y: d.area[3] + 14.4, "text-anchor": "middle" });
      svgNode(d.labels, "path", { class: "axis", d: "M" + at + "," + d.area[3] + "v4" });
    }
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

  // nameOf names a curve, a thin one by its number within its arm.
  const nameOf = (c) => (c.name || c.arm) + (c.nth ? ", run " + c.nth : "");

  // shown returns the curves whose values are read: those of an arm that are not thin, or else all of it.
  function shown(f) {
    const all = visible(f), thick = new Set(all.filter((c) => !c.thin).map((c) => c.arm));
    return all.filter((c) => !c.thin || !thick.has(c.arm));
  }

  // stops returns the x that are read.
  function stops(f) {
    return f.stops ??= [...new Set(shown(f).flatMap((c) => c.x.filter((x, i) => c.y[i] !== null && inside(f, x))))]
      .sort((a, b) => a - b);
  }

  // read shows the values at a place: { id, drawing, x } on a chart, { id, drawing, row, column } on a map. The other
  // charts of the axis show theirs at the same x.
  function read(place) {
    close();
    const f = figures.find((one) => one.id === place.id), d = f && f.drawings[place.drawing];
    if (!d) return;
    const tip = added(f, "tip");
    tip.setAttribute("role", "status");
    const at = f.data.cells ? readCell(f, d, place, tip) : readCurves(f, d, place, tip);
    if (at === null) { close(); return; }
    const cells = f.data.cells?.box;
    put(f, d, tip, at, cells ? cells[1] + (place.row + 1) * cells[3] : 15);
    if (cells || f.data.labels) return;
    for (const other of figures) {
      if (other !== f && !other.data.cells && !other.data.labels && other.key === f.key) readAlso(other, place.x);
    }
  }

  // added returns a box for values on a figure.
  const added = (f, className) => f.element.appendChild(Object.assign(document.createElement("div"), { className }));

  // put places a box beside a place of a drawing, given in the drawing's units.
  function put(f, d, box, at, below) {
    const svg = d.svg.getBoundingClientRect(), outer = f.element.getBoundingClientRect();
    const x = svg.left - outer.left + at * svg.width / d.svg.viewBox.baseVal.width;
    const right = x + 14 + box.offsetWidth <= Math.min(outer.width, document.documentElement.clientWidth - outer.left);
    box.style.left = Math.max(0, right ? x + 14 : x - 14 - box.offsetWidth) + "px";
    box.style.top = svg.top - outer.top + below * svg.height / d.svg.viewBox.baseVal.height + 7 + "px";
  }

  // readAlso marks x on a chart beside the one that is read, with the values of its first curves.
  function readAlso(f, x) {
    if (!inside(f, x) || !stops(f).length) return;
    for (const d of f.drawings) {
      const seen = d.svg.getBoundingClientRect();
      if (seen.width === 0 || seen.bottom < 0 || seen.top > innerHeight) continue;
      const box = added(f, "also"), table = box.appendChild(document.createElement("table"));
      const { left, rows } = valuesAt(f, d, x);
      for (const { c, i } of rows.slice(0, 4)) row(table, { ...c, name: "" }, text(f, c.y[i]), "");
      put(f, d, box, left, 15);
    }
  }

  // valuesAt draws a line at the stop next to x and a dot on each curve that is read, and returns where, and the curves
  // with the numbers of their points, the largest value first.
  function valuesAt(f, d, x) {
    const all = stops(f), stop = all[nearest(all, x)], left = across(f.x, d.area, stop);
    svgNode(d.group, "path", { class: "hair", d: "M" + round(left) + "," + d.area[1] + "V" + d.area[3] });
    const rows = f.data.labels ? [] : shown(f).map((c) => {
      const known = c.x.map((_, i) => i).filter((i) => c.y[i] !== null);
      return { c, i: known[nearest(known.map((i) => c.x[i]), stop)] };
    }).filter(({ i }) => i !== undefined).sort((a, b) => b.c.y[b.i] - a.c.y[a.i]);
    for (const { c, i } of rows) {
      const top = down(f.axis, d.area, c.y[i]);
      if (drawable(f.axis, c.y[i]) && inside(f, c.x[i]) && top >= d.area[1] - 1 && top <= d.area[3] + 1)
        svgNode(d.group, "circle", { class: "dot", cx: round(across(f.x, d.area, c.x[i])), cy: round(top),
          r: 3.2 }).style.fill = "var(--" + c.colour + ")";
    }
    return { left, stop, rows };
  }

  const text = (f, y, digits) => f.data.y.percent ? number(100 * y, digits) + "%" : number(y, digits);

  function readCurves(f, d, place, tip) {
    if (!stops(f).length) return null;
    const { left, stop, rows } = valuesAt(f, d, place.x);
    heading(tip, ...(f.data.labels ? [f.data.labels[stop], ""] : [f.x.title, number(stop, 10)]));
    if (f.data.labels) return left;
    const table = tip.appendChild(document.createElement("table")), most = 12;
    for (const { c, i } of rows.slice(0, most)) {
      const more = [], off = Math.abs(share(f.x, c.x[i]) - share(f.x, stop)) > 0.01;
      if (c.low && c.low[i] !== null && c.high[i] > c.low[i]) {
        more.push(number(c.low[i], 3) + "–" + number(c.high[i], 3));
      }
      const raw = f.plain.filter((o) => o.thin && !c.thin && o.arm === c.arm)
        .map((o) => o.y[nearest(o.x, c.x[i])])
        .filter((v) => v !== undefined && v !== null);
      if (raw.length === 1 && f.data.noisy) more.push("raw " + number(raw[0], 4));
      if (raw.length > 1 && !more.length) more.push(number(Math.min(...raw), 3) + "–" + number(Math.max(...raw), 3));
      if (off) more.push("at " + number(c.x[i], 10));
      row(table, { ...c, name: nameOf({ ...c, nth: c.alone && c.nth }) }, text(f, c.y[i]), more.join(", "));
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
    name.append(c.name);
    cells.insertCell().textContent = text;
    cells.insertCell().appendChild(document.createElement("small")).textContent = more;
  }

  function close() {
    for (const node of document.querySelectorAll(".tip, .also, .hair, .dot")) node.remove();
  }

  // The mouse and the keys.

  // placeOf returns how far across the drawing an event is, and how far down, in the drawing's own units.
  function placeOf(d, event) {
    const box = d.svg.getBoundingClientRect(), view = d.svg.viewBox.baseVal;
    return [(event.clientX - box.left) / box.width * view.width, (event.clientY - box.top) / box.height * view.height];
  }

  const shareOf = (d, x) => Math.max(0, Math.min(1, (x - d.area[0]) / (d.area[2] - d.area[0])));

  function pointed(f, d, drawing, event) {
    const [x, y] = placeOf(d, event);
    if (f.data.cells) {
      const [left, top, width, height] = f.data.cells.box;
      reading = { id: f.id, drawing, column: Math.floor((x - left) / width), row: Math.floor((y - top) / height) };
    } else
      reading = { id: f.id, drawing, x: value(f.x, shareOf(d, x)) };
    if (drag) mark(x);
    read(reading);
  }

  // press begins to mark a part of the axis; a finger reads values only.
  function press(f, d, event) {
    f.touched = event.pointerType === "touch";
    if (!f.zoomable || f.touched || event.button !== 0) return;
    const [x] = placeOf(d, event);
    drag = { f, d, from: x, to: x };
    d.svg.setPointerCapture(event.pointerId);
  }

  function mark(x) {
    const { d } = drag, slack = 5;
    drag.to = x;
    drag.moved ||= Math.abs(x - drag.from) > slack;
    d.svg.querySelector(".marked")?.remove();
    d.svg.classList.toggle("marking", Boolean(drag.moved));
    if (!drag.moved) return;
    const [left, right] = [drag.from, x].map((at) => Math.max(d.area[0], Math.min(d.area[2], at)))
      .sort((a, b) => a - b);
    svgNode(d.group, "rect", { class: "marked", x: round(left), y: d.area[1], width: round(right - left),
      height: d.area[3] - d.area[1] });
  }

  // release zooms into what is marked, unless it is taken back.
  function release(taken) {
    if (!drag) return;
    const { f, d, from, to, moved } = drag;
    const [low, high] = [from, to].map((x) => shareOf(d, x)).sort((a, b) => a - b);
    drag = null;
    d.svg.querySelector(".marked")?.remove();
    d.svg.classList.remove("marking");
    if (moved && taken) zoomTo(f, part(f.x, low, high));
  }

  function pressedTwice(f, d, event) {
    if (f.zoomed) { zoomOut(f); return; }
    if (!f.touched || !f.zoomable) return; // a finger cannot mark
    const at = shareOf(d, placeOf(d, event)[0]);
    zoomBy(f, at - 1 / 8, at + 1 / 8);
  }

  function pressed(f, drawing, event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-1e9, 0],
      End: [1e9, 0] }[event.key];
    const here = reading && reading.id === f.id ? reading : null;
    if (event.key === "Escape") { release(false); reading = null; close(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (f.zoomable && zoomed(f, event, here)) { event.preventDefault(); return; }
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

  // zoomed zooms by + and −, about the place that is read or the middle, shows all by 0, and moves by Shift and an
  // arrow. It reports whether the key was one of these.
  function zoomed(f, event, here) {
    const middle = here && inside(f, here.x) ? share(f.x, here.x) : 0.5;
    const quarter = { ArrowLeft: -1 / 4, ArrowRight: 1 / 4 }[event.key];
    if (event.key === "0") zoomOut(f);
    else if ("+=".includes(event.key)) zoomBy(f, middle / 2, middle / 2 + 1 / 2);
    else if (event.key === "-") zoomBy(f, -middle, 2 - middle);
    else if (event.shiftKey && quarter && f.zoomed) zoomBy(f, quarter, 1 + quarter);
    else return false;
    return true;
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
      for (const c of f.data.curves)
        c.x.forEach((x, i) => lines.push([nameOf(c), f.data.labels ? f.data.labels[x] : x, c.y[i], c.low?.[i],
          c.high?.[i]]));
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
    const source = document.getElementById("measures");
    if (source) {
      measures = JSON.parse(source.textContent);
      measures.runs = measures.runs.map((run) => run.map(unpacked));
    }
    figures = [];
    for (const source of document.querySelectorAll('script[type="application/json"]:not([id])'))
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
    for (const section of document.querySelectorAll("section")) startChoices(section);
    readAddress();
    const keys = reading && reading.keys && figures.find((f) => f.id === reading.id);
    if (keys) keys.drawings[reading.drawing].svg.focus({ preventScroll: true });
    show();
  }

  // startChoices puts what can be chosen above the first figure that it changes.
  function startChoices(section) {
    const own = figures.filter((f) => section.contains(f.element));
    const bar = Object.assign(document.createElement("p"), { className: "choices" });
    for (const [key, name, values, changes] of choices()) {
      if (!own.some(changes)) continue;
      const label = bar.appendChild(document.createElement("label"));
      Object.assign(label, { className: key, textContent: name + " " });
      const select = label.appendChild(document.createElement("select"));
      select.name = key;
      for (const [v, text] of values) select.add(new Option(text, v));
      select.addEventListener("change", () => { state[key] = select.value; select.blur(); changed(); });
    }
    const first = own.find((f) => f.zoomable);
    if (first)
      bar.append(matchMedia("(hover: none)").matches ? "Tap a chart twice to zoom in, and again to zoom out." :
        "Drag over a chart to zoom in, double-click to zoom out.");
    if (bar.hasChildNodes()) (first || own[0]).element.parentElement.before(bar);
  }

  function startFigure(element, data) {
    const count = {};
    for (const c of data.curves || []) {
      c.x = unpacked(c.x);
      if (c.thin) c.nth = count[c.arm] = (count[c.arm] || 0) + 1;
    }
    const f = { id: element.id, element, data, drawings: [], several: new Set() };
    if (data.curves) {
      f.several = new Set(data.curves.filter((c) => c.avg).map((c) => c.arm));
      f.zoomable = !data.labels && data.curves.some((c) => c.x.length > 2);
      f.switchable = Boolean(data.x.measure) && [...data.curves, ...data.marks || []].every((c) => c.run);
      data.x.whole = data.curves.every((c) => c.x.every(Number.isInteger));
    }
    const caption = element.querySelector("figcaption, h3");
    const tools = Object.assign(document.createElement("span"), { className: "tools" });
    f.reset = button(tools, "zoom out", "show all of the axis", () => zoomOut(f));
    f.reset.hidden = true;
    if (data.curves && !data.labels && !data.y.log && element.querySelector('[data-p^="n"]')) // with labels of the axis
      f.log = fitted(data.y, data.curves.flatMap((c) => c.y).filter((y) => y !== null), true);
    if (f.log) f.button = button(tools, "log", "logarithmic axis", () => change(state.log, f.id));
    button(tools, "CSV", "download the points", () => download(f));
    button(tools, "link", "copy a link to this figure as it is shown", (b) => copy(b, address(f.id)));
    f.caption = caption.firstChild ?? caption.appendChild(new Text());
    f.title = f.caption.data;
    caption.prepend(tools);
    element.querySelectorAll("svg:not(.icon, .meter)").forEach((svg, i) => f.drawings.push(startDrawing(f, svg, i)));
    return f;
  }

  function startDrawing(f, svg, drawing) {
    const title = svg.querySelector(":scope > title"), group = svgNode(svg, "g", {});
    const d = { svg, group, area: (f.data.areas || [])[drawing], parts: [] };
    d.labels = svgNode(group, "g", {});
    d.named = svg.querySelector('[data-p^="u"]') !== null;
    for (const node of svg.querySelectorAll("[data-p]")) {
      const part = node.dataset.p[0], n = Number(node.dataset.p.slice(1));
      d.parts.push({ node, part, n, path: node.getAttribute("d"), text: node.textContent });
    }
    const first = svg.querySelector('[data-p^="l"]'); // bands of means lie behind the lines
    (f.data.curves || []).forEach((c, n) => {
      if (!c.avg || !first) return;
      const node = svgNode(svg, "path", { class: "band", color: "var(--" + c.colour + ")" });
      first.before(node);
      d.parts.push({ node, part: "v", n, path: "" });
    });
    if (d.area) {
      const id = "clip-" + figures.length + "-" + drawing, clip = svgNode(group, "clipPath", { id });
      const [left, top, right, bottom] = d.area;
      svgNode(clip, "rect", { x: left, y: top - 1, width: right - left, height: bottom - top + 2 });
      for (const { node, part } of d.parts) {
        if ("lbv".includes(part)) node.setAttribute("clip-path", "url(#" + id + ")");
      }
    }
    if (title) { // the browser would show it over the values
      svg.setAttribute("aria-label", title.textContent);
    }
    for (const shown of svg.querySelectorAll("title")) shown.remove();
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("aria-description", "The arrow keys read values." +
      (f.zoomable ? " Plus and minus zoom, 0 shows all, Shift with an arrow moves." : ""));
    svg.addEventListener("pointermove", (event) => pointed(f, d, drawing, event));
    svg.addEventListener("pointerdown", (event) => { press(f, d, event); pointed(f, d, drawing, event); });
    svg.addEventListener("pointerup", () => release(true));
    svg.addEventListener("pointercancel", () => release(false));
    svg.addEventListener("dblclick", (event) => pressedTwice(f, d, event));
    for (const leave of ["pointerleave", "blur"])
      svg.addEventListener(leave, () => queueMicrotask(() => { // not where the page is being replaced
        if (svg.isConnected && !drag) { reading = null; close(); }
      }));
    svg.addEventListener("keydown", (event) => pressed(f, drawing, event));
    return d;
  }

  start();
  if (state.at && document.getElementById(state.at)) document.getElementById(state.at).scrollIntoView();
  addEventListener("hashchange", () => { readAddress(); show(); });
  document.addEventListener("reprise:replaced", start);
})();
