// Charts on a canvas: lines with bands, stacked areas, a cursor that all charts share, zoom by dragging.

const $ = id => document.getElementById(id);

function element(tag, text, name) {
  const out = document.createElement(tag);
  if (text !== undefined && text !== null) out.textContent = text;
  if (name) out.className = name;
  return out;
}

function swatch(tag, color, name) {
  const out = element(tag, null, name);
  out.style.setProperty("--swatch", color);
  return out;
}

// Colors of runs and of curves, distinct on light and dark ground (after Okabe and Ito).
const palette = ["#2f6fed", "#e0691a", "#0b9a6d", "#c23b8f", "#8a63d2", "#b58a00", "#1a9fc4", "#d2483d", "#6d8a2f", "#7a6a58"];
const colorOf = i => palette[i % palette.length];

function numberText(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size >= 1e9) return (x / 1e9).toPrecision(3) + "G";
  if (size >= 1e6) return (x / 1e6).toPrecision(3) + "M";
  if (size >= 1e4) return (x / 1e3).toPrecision(3) + "k";
  if (size < 1e-3) return x.toExponential(2);
  return Number.isInteger(x) ? String(x) : String(Number(x.toPrecision(4)));
}

// Round tick positions between two numbers.
function ticksOf(low, high, count) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => span / s <= count) ?? 10 * power;
  const out = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) out.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return out;
}

function logTicks(low, high) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); ++p)
    for (const f of high / low > 1000 ? [1] : [1, 2, 5]) if (f * 10 ** p >= low * 0.999 && f * 10 ** p <= high * 1.001) out.push(f * 10 ** p);
  return out.length ? out : [low, high];
}

// An exponential moving average without the bias of its start. It starts anew at the places `breaks` (of stages).
function smoothed(ys, weight, xs = [], breaks = []) {
  if (weight <= 0) return ys;
  const out = new Array(ys.length);
  let sum = 0, mass = 0, next = 0;
  for (let i = 0; i < ys.length; ++i) {
    for (; next < breaks.length && xs[i] >= breaks[next]; ++next) sum = mass = 0;
    if (Number.isFinite(ys[i])) {
      sum = weight * sum + (1 - weight) * ys[i];
      mass = weight * mass + (1 - weight);
    }
    out[i] = Number.isFinite(ys[i]) ? sum / mass : NaN;
  }
  return out;
}

// The place of the largest x that is at most `x`.
function indexAt(xs, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (xs[middle] <= x) low = middle; else high = middle - 1;
  }
  return low;
}
function nearestIndex(xs, x) {
  const i = indexAt(xs, x);
  return i + 1 < xs.length && Math.abs(xs[i + 1] - x) < Math.abs(xs[i] - x) ? i + 1 : i;
}

const shared = {cursor: null, zoom: null, charts: new Set()};
function redrawAll() { for (const chart of shared.charts) chart.schedule(); }

// A chart of curves {name, color, xs, ys, low, high, dash}. options: {title, stacked, log, marks: [{x, label}]}.
class Chart {
  constructor(title, options = {}) {
    this.title = title;
    this.options = options;
    this.curves = [];
    this.marks = [];
    this.log = false;
    this.figure = element("figure", null, "card chart");
    const caption = element("figcaption"), tools = element("span", null, "tools");
    this.now = element("span", "", "now");
    caption.append(element("b", title), this.now, tools);
    this.logButton = this.tool(tools, "log", "Logarithmic scale", () => { this.log = !this.log; return this.log; });
    this.tool(tools, "⤢", "Full width", () => this.figure.classList.toggle("wide"));
    this.tool(tools, "csv", "Copy the values as CSV", button => { this.copy(button); return false; });
    this.canvas = element("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.legend = element("div", null, "legend");
    this.figure.append(caption, this.canvas, this.legend);
    this.listen();
    this.visible = true;
    this.watcher = new IntersectionObserver(entries => { this.visible = entries.at(-1).isIntersecting; if (this.visible) this.schedule(); });
    this.watcher.observe(this.canvas);
    new ResizeObserver(() => this.schedule()).observe(this.canvas);
    shared.charts.add(this);
  }
  remove() {
    this.watcher.disconnect();
    shared.charts.delete(this);
    this.figure.remove();
  }
  tool(tools, text, title, action) {
    const button = element("button", text);
    button.title = title;
    button.setAttribute("aria-label", `${title}: ${this.title}`);
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => { button.setAttribute("aria-pressed", String(Boolean(action(button)))); this.schedule(); });
    tools.append(button);
    return button;
  }
  copy(button) {
    const lines = ["curve,x,y"];
    for (const curve of this.curves) curve.xs.forEach((x, i) => lines.push(`${JSON.stringify(curve.name)},${x},${curve.ys[i]}`));
    navigator.clipboard?.writeText(lines.join("\n")).then(() => { button.textContent = "copied"; setTimeout(() => { button.textContent = "csv"; }, 1500); });
  }

  set(curves, settings, marks = []) {
    this.curves = curves;
    this.settings = settings;
    this.marks = marks;
    this.shown = curves.map(curve => smoothed(curve.ys, this.options.stacked || curve.raw ? 0 : settings.smooth, curve.xs, curve.breaks));
    const last = curves.length === 1 ? this.shown[0].findLast(Number.isFinite) : null;
    this.now.textContent = last === null || last === undefined ? "" : numberText(last);
    this.canvas.setAttribute("aria-label", `${this.title}. ` + curves.map((c, i) => {
      const ys = this.shown[i].filter(Number.isFinite);
      return ys.length ? `${c.name}: first ${numberText(ys[0])}, last ${numberText(ys.at(-1))}, lowest ${numberText(Math.min(...ys.slice(-2000)))}, highest ${numberText(Math.max(...ys.slice(-2000)))}` : `${c.name}: no values`;
    }).join("; "));
    // Of several runs with several metrics the legend names the metrics; the list of runs has the colors.
    const named = new Map(curves.map(curve => [curve.label ?? curve.name, curve]));
    this.legend.replaceChildren(...(named.size < 2 && settings.numRuns < 2 && !this.options.stacked ? [] : [...named].slice(0, 12).map(([label, curve]) => {
      const item = element("span"), mark = swatch("i", curve.label ? "var(--muted)" : curve.color, this.options.stacked ? "area" : curve.dash?.length ? "dashed" : "");
      item.append(mark, label);
      return item;
    })));
    this.schedule();
  }
  schedule() {
    if (this.scheduled || !this.visible) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; if (this.visible && this.canvas.isConnected) this.draw(); });
  }

  // The range of the horizontal axis: the zoom, or that of all curves.
  xRange() {
    let low = Infinity, high = -Infinity;
    for (const {xs} of this.curves) if (xs.length) { low = Math.min(low, xs[0]); high = Math.max(high, xs.at(-1)); }
    if (shared.zoom) [low, high] = shared.zoom;
    if (!(low < high)) { low = Number.isFinite(low) ? low - 0.5 : 0; high = low + 1; }
    return [low, high];
  }
  yRange(xLow, xHigh, log) {
    const values = [];
    this.curves.forEach((curve, c) => {
      const from = Math.max(0, indexAt(curve.xs, xLow)), to = curve.xs.length;
      for (let i = from; i < to && curve.xs[i] <= xHigh; ++i) {
        for (const y of this.options.stacked ? [curve.high[i]] : [this.shown[c][i], curve.low?.[i], curve.high?.[i]])
          if (Number.isFinite(y) && (!log || y > 0)) values.push(y);
      }
    });
    if (!values.length) return log ? [0.1, 1] : [0, 1];
    values.sort((a, b) => a - b);
    const cut = this.settings.outliers && values.length > 20 ? Math.floor(values.length * 0.02) : 0;
    let low = values[cut], high = values[values.length - 1 - cut];
    if (this.options.stacked) low = 0;
    if (log) return low < high ? [low, high] : [low / 2, high * 2];
    if (low >= 0 && high <= 1 && high > 0.2 && this.options.share) return [0, 1];
    const margin = (high - low || Math.abs(high) || 1) * 0.06;
    return [low === 0 ? 0 : low >= 0 && low < margin ? 0 : low - margin, high + margin];
  }

  draw() {
    const box = this.canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    if (box.width < 10) return;
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    const paint = this.canvas.getContext("2d"), css = getComputedStyle(document.documentElement);
    const tint = name => css.getPropertyValue(name).trim();
    paint.scale(ratio, ratio);
    paint.font = "11px system-ui, sans-serif";
    const log = (this.log || this.settings?.log) && !this.options.stacked;
    const [xLow, xHigh] = this.xRange(), [yLow, yHigh] = this.yRange(xLow, xHigh, log);
    const yTicks = log ? logTicks(yLow, yHigh) : ticksOf(yLow, yHigh, 5);
    const left = 10 + Math.max(24, ...yTicks.map(t => paint.measureText(numberText(t)).width));
    const area = this.area = {left, top: 8, right: box.width - 8, bottom: box.height - 20, xLow, xHigh};
    const f = log ? Math.log10 : x => x, range = f(yHigh) - f(yLow) || 1;
    const px = x => area.left + (x - xLow) / (xHigh - xLow) * (area.right - area.left);
    const py = y => area.bottom - (f(y) - f(yLow)) / range * (area.bottom - area.top);
    this.px = px;
    paint.lineWidth = 1;
    paint.textBaseline = "middle";
    paint.textAlign = "right";
    for (const t of yTicks) {
      paint.strokeStyle = tint("--grid");
      paint.beginPath(); paint.moveTo(area.left, Math.round(py(t)) + 0.5); paint.lineTo(area.right, Math.round(py(t)) + 0.5); paint.stroke();
      paint.fillStyle = tint("--muted");
      paint.fillText(numberText(t), area.left - 6, py(t));
    }
    paint.textBaseline = "top";
    paint.textAlign = "center";
    for (const t of ticksOf(xLow, xHigh, Math.max(2, Math.floor(box.width / 90)))) paint.fillText(numberText(t), px(t), area.bottom + 6);
    paint.save();
    paint.beginPath(); paint.rect(area.left, area.top - 4, area.right - area.left, area.bottom - area.top + 5); paint.clip();
    this.drawMarks(paint, px, area, tint);
    this.options.stacked ? this.drawAreas(paint, px, py) : this.drawLines(paint, px, py, log);
    this.drawCursor(paint, px, py, area, tint);
    paint.restore();
    if (!this.curves.some(c => c.xs.length)) { paint.fillStyle = tint("--muted"); paint.fillText("no values yet", (area.left + area.right) / 2, (area.top + area.bottom) / 2); }
  }
  drawMarks(paint, px, area, tint) {
    paint.textAlign = "left";
    for (const {x, label} of this.marks) {
      if (x < area.xLow || x > area.xHigh) continue;
      paint.strokeStyle = tint("--muted");
      paint.setLineDash([3, 3]);
      paint.beginPath(); paint.moveTo(px(x), area.top); paint.lineTo(px(x), area.bottom); paint.stroke();
      paint.setLineDash([]);
      paint.fillStyle = tint("--muted");
      paint.fillText(label, px(x) + 4, area.top - 2);
    }
  }
  // Strokes a polyline; gaps where a value is missing.
  trace(paint, xs, ys, px, py, log) {
    paint.beginPath();
    let open = false;
    for (let i = 0; i < xs.length; ++i) {
      const usable = Number.isFinite(ys[i]) && (!log || ys[i] > 0);
      if (!usable) continue;
      open ? paint.lineTo(px(xs[i]), py(ys[i])) : paint.moveTo(px(xs[i]), py(ys[i]));
      open = true;
    }
    paint.stroke();
  }
  drawLines(paint, px, py, log) {
    this.curves.forEach((curve, c) => {
      const {xs, ys, low, high, color, dash} = curve;
      paint.strokeStyle = paint.fillStyle = color;
      if (low && high) {
        const usable = xs.map((_, i) => i).filter(i => Number.isFinite(low[i]) && Number.isFinite(high[i]) && (!log || low[i] > 0));
        paint.globalAlpha = 0.16;
        paint.beginPath();
        for (const i of usable) paint.lineTo(px(xs[i]), py(high[i]));
        for (const i of usable.reverse()) paint.lineTo(px(xs[i]), py(low[i]));
        paint.fill();
      }
      paint.lineJoin = "round";
      paint.setLineDash(dash ?? []);
      if (this.settings.smooth > 0 && !curve.raw) {
        paint.globalAlpha = 0.22;
        paint.lineWidth = 1;
        this.trace(paint, xs, ys, px, py, log);
      }
      paint.globalAlpha = 1;
      paint.lineWidth = 1.8;
      this.trace(paint, xs, this.shown[c], px, py, log);
      paint.setLineDash([]);
      if (xs.length < 25) for (let i = 0; i < xs.length; ++i) {
        const y = this.shown[c][i];
        if (!Number.isFinite(y) || (log && y <= 0)) continue;
        paint.beginPath(); paint.arc(px(xs[i]), py(y), 2.4, 0, 7); paint.fill();
        if (low && high && curve.raw && xs.length < 13 && Number.isFinite(low[i])) {
          paint.beginPath(); paint.moveTo(px(xs[i]), py(low[i])); paint.lineTo(px(xs[i]), py(high[i])); paint.stroke();
        }
      }
    });
  }
  drawAreas(paint, px, py) {
    for (const {xs, low, high, color} of this.curves) {
      paint.fillStyle = color;
      paint.globalAlpha = 0.85;
      paint.beginPath();
      for (let i = 0; i < xs.length; ++i) paint.lineTo(px(xs[i]), py(high[i]));
      for (let i = xs.length; i-- > 0;) paint.lineTo(px(xs[i]), py(low[i]));
      paint.fill();
    }
    paint.globalAlpha = 1;
  }
  drawCursor(paint, px, py, area, tint) {
    if (this.dragging) {
      paint.fillStyle = tint("--accent-soft");
      paint.fillRect(this.dragging.from, area.top, this.dragging.to - this.dragging.from, area.bottom - area.top);
    }
    if (shared.cursor === null || shared.cursor < area.xLow || shared.cursor > area.xHigh) return;
    paint.strokeStyle = tint("--muted");
    paint.beginPath(); paint.moveTo(px(shared.cursor), area.top); paint.lineTo(px(shared.cursor), area.bottom); paint.stroke();
    this.curves.forEach((curve, c) => {
      if (!curve.xs.length) return;
      const i = nearestIndex(curve.xs, shared.cursor), y = this.options.stacked ? curve.high[i] : this.shown[c][i];
      if (!Number.isFinite(y)) return;
      paint.fillStyle = curve.color;
      paint.beginPath(); paint.arc(px(curve.xs[i]), py(y), 3, 0, 7); paint.fill();
    });
  }

  listen() {
    const xOf = event => {
      const {left, right, xLow, xHigh} = this.area;
      return xLow + (event.offsetX - left) / (right - left) * (xHigh - xLow);
    };
    this.canvas.addEventListener("pointermove", event => {
      if (!this.area) return;
      if (this.dragging) this.dragging.to = event.offsetX;
      this.moveCursor(xOf(event), event.clientX, event.clientY);
    });
    this.canvas.addEventListener("pointerleave", () => { shared.cursor = null; $("tip").hidden = true; redrawAll(); });
    this.canvas.addEventListener("pointerdown", event => {
      if (event.button !== 0 || event.pointerType === "touch" || !this.area) return;
      this.dragging = {from: event.offsetX, to: event.offsetX};
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointerup", event => {
      const drag = this.dragging;
      this.dragging = null;
      if (!drag || Math.abs(drag.to - drag.from) < 6) return redrawAll();
      const at = offset => xOf({offsetX: offset});
      shared.zoom = [at(Math.min(drag.from, drag.to)), at(Math.max(drag.from, drag.to))];
      redrawAll();
    });
    this.canvas.addEventListener("dblclick", () => { shared.zoom = null; redrawAll(); });
    this.canvas.addEventListener("keydown", event => this.key(event));
    this.canvas.addEventListener("blur", () => { shared.cursor = null; $("tip").hidden = true; redrawAll(); });
  }
  key(event) {
    const xs = this.curves.find(c => c.xs.length)?.xs;
    if (event.key === "Escape") { shared.zoom = null; shared.cursor = null; $("tip").hidden = true; return redrawAll(); }
    const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity}[event.key];
    if (!move || !xs || !this.area) return;
    event.preventDefault();
    const at = shared.cursor === null ? xs.length - 1 : nearestIndex(xs, shared.cursor) + move;
    const x = xs[Math.max(0, Math.min(xs.length - 1, at))], box = this.canvas.getBoundingClientRect();
    this.moveCursor(x, box.left + this.px(x), box.top + box.height / 2);
    $("say").textContent = $("tip").textContent;
  }
  moveCursor(x, clientX, clientY) {
    shared.cursor = x;
    const rows = [];
    this.curves.forEach((curve, c) => {
      if (!curve.xs.length) return;
      const i = nearestIndex(curve.xs, x), y = this.options.stacked ? curve.high[i] - curve.low[i] : this.shown[c][i];
      rows.push({curve, at: curve.xs[i], y, raw: curve.ys?.[i], band: !this.options.stacked && curve.low ? [curve.low[i], curve.high[i]] : null});
    });
    const tip = $("tip"), table = element("table");
    for (const {curve, y, raw, band} of rows.sort((a, b) => b.y - a.y).slice(0, 14)) {
      const row = element("tr"), name = element("td");
      name.append(swatch("i", curve.color), curve.name);
      const more = band && Number.isFinite(band[0]) ? ` [${numberText(band[0])}, ${numberText(band[1])}]` : this.settings.smooth > 0 && raw !== y && !this.options.stacked ? ` (${numberText(raw)})` : "";
      row.append(name, element("td", numberText(y) + more));
      table.append(row);
    }
    tip.replaceChildren(element("small", `${this.settings.axisName} ${numberText(rows[0]?.at ?? x)}`), table);
    tip.hidden = false;
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${clientX + width + 24 > innerWidth ? clientX - width - 14 : clientX + 14}px`;
    tip.style.top = `${Math.min(Math.max(8, clientY - height / 2), innerHeight - height - 8)}px`;
    redrawAll();
  }
}
