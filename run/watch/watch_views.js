// The tabs "Curves", "System" (step time, environment, workers) and "Compare", and the frame around them.

// Charts of the tab "Curves", by group. band: metrics of the lower and upper edge.
const groups = [
  ["Reward and loss", [
    {title: "Reward", metrics: ["reward"], spread: "reward_std"},
    {title: "Loss", metrics: ["loss", "eval_loss"]},
    {title: "Token accuracy", metrics: ["mean_token_accuracy", "eval_mean_token_accuracy"]},
    {title: "Preference accuracy", metrics: ["rewards/accuracies", "accuracy"]},
    {title: "Reward margin", metrics: ["rewards/margins", "margin"]},
    {title: "Reward parts", find: /^rewards\/.+\/mean$/},
    {title: "Groups with equal rewards", metrics: ["frac_reward_zero_std"], share: true}]],
  ["Evaluation", []],
  ["Policy", [
    {title: "Entropy", metrics: ["entropy"]},
    {title: "KL", metrics: ["kl", "objective/kl"]},
    {title: "Clip shares", metrics: ["clip_ratio/region_mean", "clip_ratio/low_mean", "clip_ratio/high_mean", "cispo_clip_ratio", "actor/pg_clipfrac", "val/clipfrac_avg"]},
    {title: "Sampler and learner: log-prob difference", metrics: ["sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/max"]},
    {title: "Importance ratio", metrics: ["sampling/importance_sampling_ratio/mean"], band: ["sampling/importance_sampling_ratio/min", "sampling/importance_sampling_ratio/max"]},
    {title: "Staleness", metrics: ["staleness/mean", "staleness/max"]}]],
  ["Completions", [
    {title: "Length", metrics: ["completions/mean_length"], band: ["completions/min_length", "completions/max_length"]},
    {title: "Reached max_tokens", metrics: ["completions/clipped_ratio"], share: true}]],
  ["Optimization", [
    {title: "Gradient norm", metrics: ["grad_norm"]},
    {title: "Learning rate", metrics: ["learning_rate"]},
    {title: "Epoch", metrics: ["epoch"]}]],
  ["Throughput and memory", [
    {title: "Tokens per second", metrics: ["tokens_per_second"]},
    {title: "Sampled tokens per second", metrics: ["rollout/tokens_per_second"]},
    {title: "Model FLOPs utilization (MFU)", metrics: ["mfu"]},
    {title: "Step time (s)", metrics: ["step_time"]},
    {title: "Memory (GB)", metrics: ["memory/allocated_gb", "memory/peak_gb"]}]],
];
const timeParts = ["time/sampling", "time/wait_rollout", "time/forward", "time/lm_head", "time/backward", "time/optimizer", "time/data"];
const dashes = [[], [5, 3], [2, 2], [8, 3, 2, 3]];

const axisNames = {step: "step", hours: "hours", tokens: "tokens"};
const settings = () => ({smooth: state.smooth, log: state.log, outliers: state.outliers, axisName: axisNames[state.axis], numRuns: shownRuns().length});

function allMetrics() {
  const out = new Set();
  for (const run of shownRuns()) for (const name of run.series.keys()) out.add(name);
  return [...out].sort();
}

function stageNames() {
  return [...new Set(shownRuns().flatMap(run => run.stageStarts.map(({stage}) => run.stageName(stage))))];
}

// The curves of a chart. One metric: a color for each run. One run: a color for each metric. Else both, with dashes.
function curvesOf(spec, metrics) {
  const runs = shownRuns(), out = [];
  for (const run of runs)
    metrics.forEach((metric, m) => {
      if (!run.has(metric)) return;
      const curve = {...run.points(metric, state.axis), raw: metric.startsWith("eval"), breaks: state.stage ? [] : run.marks(state.axis).map(mark => mark.x), color: runs.length === 1 ? (metrics.length === 1 ? run.color : colorOf(m)) : run.color, dash: runs.length > 1 ? dashes[m % dashes.length] : [],
        name: runs.length === 1 ? (metrics.length === 1 ? run.name : metric) : metrics.length === 1 ? run.name : `${run.name} · ${metric}`};
      if (runs.length > 1 && metrics.length > 1) curve.label = metric;
      if (m === 0) addBand(curve, run, spec, metric);
      out.push(curve);
    });
  return out;
}
function addBand(curve, run, spec, metric) {
  const [low, high] = spec.band ?? [`${metric}_low`, `${metric}_high`];
  if (run.has(low) && run.has(high)) {
    const lows = run.points(low, state.axis).ys, highs = run.points(high, state.axis).ys;
    if (lows.length !== curve.xs.length || highs.length !== curve.xs.length) return;
    curve.low = lows;
    curve.high = highs;
  } else if (spec.spread && run.has(spec.spread) && shownRuns().length === 1) {
    const spread = run.points(spec.spread, state.axis).ys;
    if (spread.length !== curve.xs.length) return;
    const middle = smoothed(curve.ys, state.smooth, curve.xs, curve.breaks), around = smoothed(spread, state.smooth, curve.xs, curve.breaks);
    curve.low = middle.map((y, i) => y - around[i]);
    curve.high = middle.map((y, i) => y + around[i]);
  }
}

// ---- Curves

const charts = new Map();  // key: {chart, spec}

function wantedCharts() {
  const metrics = allMetrics(), out = [], used = new Set();
  const words = state.findMetric.toLowerCase().split(/\s+/).filter(Boolean);
  const add = (group, spec, found) => { found.forEach(m => used.add(m)); out.push({group, spec, metrics: found, key: `${group}/${spec.title}`}); };
  for (const [group, specs] of groups) {
    if (group === "Evaluation")
      for (const metric of [...metrics].sort((a, b) => /accuracy$/.test(b) - /accuracy$/.test(a))) if (/^eval\/.+/.test(metric) && !/_(low|high)$/.test(metric)) add(group, {title: metric.slice(5), share: /accuracy$/.test(metric)}, [metric]);
    for (const spec of specs) {
      const found = spec.find ? metrics.filter(m => spec.find.test(m)) : spec.metrics.filter(m => metrics.includes(m));
      if (found.length) add(group, spec, found);
    }
  }
  if (!words.length) return out;
  const fits = text => words.every(word => text.toLowerCase().includes(word));
  const rest = metrics.filter(m => !used.has(m) && fits(m)).map(metric => ({group: "Other metrics", spec: {title: metric}, metrics: [metric], key: metric}));
  return [...out.filter(c => fits(c.spec.title) || c.metrics.some(fits)), ...rest];
}

function showStages() {
  const names = stageNames(), menu = $("stage");
  if (menu.options.length === names.length + 1 && names.every((n, i) => menu.options[i + 1].value === n)) return;
  menu.replaceChildren(...["", ...names].map(name => { const option = element("option", name || "all"); option.value = name; return option; }));
  if (!names.includes(state.stage)) state.stage = "";
  menu.value = state.stage;
}

function showCurves() {
  showStages();
  const home = $("curves"), wanted = wantedCharts(), keys = new Set(wanted.map(w => w.key));
  for (const [key, {chart}] of charts) if (!keys.has(key)) { chart.remove(); charts.delete(key); }
  const parts = [tiles()];
  let grid = null, group = null;
  for (const {group: name, spec, metrics, key} of wanted) {
    if (name !== group) {
      group = name;
      const title = element("div", null, "group");
      title.append(element("h2", name));
      grid = element("div", null, "grid");
      parts.push(title, grid);
    }
    if (!charts.has(key)) charts.set(key, {chart: new Chart(spec.title, {share: spec.share})});
    const {chart} = charts.get(key), marked = shownRuns().length === 1 && !state.stage ? shownRuns()[0].marks(state.axis) : [];
    chart.set(curvesOf(spec, metrics), settings(), marked);
    grid.append(chart.figure);
  }
  if (!wanted.length) parts.push(element("p", state.runs.size ? "No metrics yet. They appear after the first logged step." : "No run yet. Start one with: hone run RECIPE.toml", "empty"));
  const at = $("main").scrollTop, focused = document.activeElement;
  home.replaceChildren(...parts);
  $("main").scrollTop = at;
  if (focused?.isConnected && home.contains(focused)) focused.focus({preventScroll: true});
}

function tile(title, value, note, share) {
  const out = element("div", null, "card tile");
  out.append(element("small", title), element("b", value));
  if (note) out.append(element("small", note));
  if (share !== undefined) {
    const bar = element("progress");
    bar.value = share;
    bar.setAttribute("aria-label", title);
    out.append(bar);
  }
  return out;
}

// The run in focus at a glance.
function tiles() {
  const out = element("div", null, "tiles"), run = focusRun();
  if (!run) return out;
  const value = name => run.last.get(name)?.[1], text = name => numberText(value(name));
  const stage = run.stageStarts.at(-1), facts = run.facts.stages?.[stage?.stage ?? 0];
  const first = facts?.first_step ?? 0, steps = facts?.steps ?? 0, done = Math.max(0, run.lastStep - (stage ? Math.min(first, run.lastStep) : 0));
  const left = steps > done && run.state === "running" && Number.isFinite(value("step_time")) ? durationText((steps - done) * value("step_time")) + " left in the stage" : run.state;
  out.append(tile(run.name, stage ? run.stageName(stage.stage) : "–", left, steps ? Math.min(1, done / steps) : undefined));
  out.append(tile("Step", numberText(run.lastStep), steps ? `${numberText(done)} of ${numberText(steps)}` : ""));
  for (const [title, metric, note] of [["Reward", "reward", "reward_std"], ["Loss", "loss"], ["Token accuracy", "mean_token_accuracy"], ["Length", "completions/mean_length"], ["Entropy", "entropy"], ["KL", "kl"]])
    if (run.has(metric)) out.append(tile(title, text(metric), note && run.has(note) ? `± ${text(note)}` : `step ${numberText(run.last.get(metric)[0])}`));
  for (const [metric, [, accuracy]] of run.last)
    if (/^eval\/[^/]+\/accuracy$/.test(metric)) out.append(tile(metric.split("/")[1], `${(100 * accuracy).toFixed(1)}%`, run.has(metric + "_low") ? `95%: ${(100 * value(metric + "_low")).toFixed(1)} – ${(100 * value(metric + "_high")).toFixed(1)}` : "accuracy"));
  if (run.has("tokens_per_second")) out.append(tile("Tokens/s", text("tokens_per_second"), run.has("mfu") ? `MFU ${(100 * value("mfu")).toFixed(1)}%` : `${text("step_time")} s a step`));
  if (run.has("memory/peak_gb")) out.append(tile("Memory", `${text("memory/allocated_gb")} GB`, `peak ${text("memory/peak_gb")} GB`));
  return out;
}
function durationText(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// ---- System: step time by part, environment, workers

const timeCharts = new Map();

function showSystem() {
  const runs = shownRuns(), parts = [];
  const grid = element("div", null, "grid"), seen = new Set();
  for (const run of runs.slice(0, 6)) {
    if (!run.has("step_time")) continue;
    seen.add(run.id);
    if (!timeCharts.has(run.id)) timeCharts.set(run.id, new Chart(`Step time by part (s): ${run.name}`, {stacked: true}));
    const chart = timeCharts.get(run.id);
    chart.set(stackedTimes(run), settings(), run.marks(state.axis));
    grid.append(chart.figure);
  }
  for (const [id, chart] of timeCharts) if (!seen.has(id)) { chart.remove(); timeCharts.delete(id); }
  const title = element("div", null, "group");
  title.append(element("h2", "Step time"));
  parts.push(title, grid);
  const run = focusRun();
  if (run) {
    const states = element("div", null, "group");
    states.append(element("h2", `State of ${run.name}`), element("small", `at step ${run.lastStep}`));
    parts.push(states, statePanels(run));
  }
  if (!seen.size) parts.push(element("p", "No training step yet.", "empty"));
  const at = $("main").scrollTop;
  $("system").replaceChildren(...parts);
  $("main").scrollTop = at;
}

// Areas on top of each other; what no part explains is "other". Steps with all parts are averaged to at most 400.
function stackedTimes(run) {
  const parts = timeParts.filter(name => run.has(name)), total = run.series.get("step_time"), out = [];
  const xs = run.points("step_time", state.axis).xs, width = Math.max(1, Math.ceil(xs.length / 400));
  const maps = parts.map(name => { const s = run.series.get(name); return new Map(s.steps.map((step, i) => [step, s.values[i]])); });
  const thin = values => { const mean = []; for (let i = 0; i < values.length; i += width) { const piece = values.slice(i, i + width); mean.push(piece.reduce((a, b) => a + b, 0) / piece.length); } return mean; };
  const columns = maps.map(map => thin(total.steps.map(step => map.get(step) ?? 0)));
  const whole = thin(total.values), known = whole.map((_, i) => columns.reduce((sum, c) => sum + c[i], 0));
  columns.push(whole.map((t, i) => Math.max(0, t - known[i])));
  const places = thin(xs);
  let base = places.map(() => 0);
  [...parts, "other"].forEach((name, p) => {
    const high = base.map((y, i) => y + columns[p][i]);
    if (columns[p].some(y => y > 0)) out.push({name: name.replace("time/", ""), color: name === "other" ? "#8a94a3" : colorOf(p), xs: places, ys: columns[p], low: base, high});
    base = high;
  });
  return out;
}

function panel(title, rows, head) {
  const out = element("div", null, "card"), table = element("table");
  if (head) { const row = element("tr"); row.append(...head.map(t => element("th", t))); table.append(row); }
  for (const cells of rows) { const row = element("tr"); row.append(...cells.map(c => { const td = element("td"); td.append(c); return td; })); table.append(row); }
  out.append(element("h3", title), table);
  return out;
}
function shareBar(value) {
  const out = element("span", null, "bar");
  const fill = element("i");
  fill.style.setProperty("--share", Math.max(0, Math.min(1, value)));
  out.append(fill);
  out.title = `${(100 * value).toFixed(1)}%`;
  return out;
}

function statePanels(run) {
  const out = element("div", null, "panels"), last = [...run.last].map(([name, [, value]]) => [name, value]);
  const under = (...prefixes) => last.filter(([name]) => prefixes.some(p => name.startsWith(p))).map(([name, value]) => [name, numberText(value)]);
  const numbers = [...new Set(last.map(([name]) => name.match(/^workers\/(\d+)\//)?.[1]).filter(Boolean))].sort((a, b) => a - b);
  if (numbers.length) {
    const of = (n, what) => run.last.get(`workers/${n}/${what}`)?.[1] ?? NaN, fastest = Math.max(...numbers.map(n => of(n, "tokens_per_second")));
    out.append(panel("Workers", numbers.map(n => [`worker ${n}`, numberText(of(n, "tokens_per_second")), shareBar(of(n, "tokens_per_second") / fastest), `${(100 * of(n, "idle_ratio")).toFixed(1)}%`, shareBar(of(n, "idle_ratio"))]), ["worker", "tokens/s", "", "idle", ""]));
  }
  for (const [title, ...prefixes] of [["Worker pool", "workers/alive", "workers/lost", "workers/retried", "workers/duplicated"], ["Queue and staleness", "queue/", "staleness/", "learner/"], ["Engine", "rollout/"],
    ["Rewards and environment", "rewards/", "environment/", "env/", "tools/", "frac_reward"], ["Task selection", "curriculum/", "filter_groups/"], ["Memory and speed", "memory/", "mfu", "tokens_per_second", "step_time", "time/"]]) {
    const rows = under(...prefixes);
    if (rows.length) out.append(panel(title, rows));
  }
  const stages = (run.facts.stages ?? []).map((s, i) => [s.name ?? `stage ${i}`, s.kind ?? "", numberText(s.steps), s.done ? "done" : run.stageStarts.at(-1)?.stage === i ? run.state : "waiting"]);
  if (stages.length) out.prepend(panel("Stages", stages, ["stage", "kind", "steps", "state"]));
  return out;
}

// ---- Compare

const recipes = new Map();  // run id: flat recipe

function flatten(value, key, out) {
  if (Array.isArray(value) && value.some(v => v && typeof v === "object")) value.forEach((v, i) => flatten(v, `${key}.${v?.name ?? i}`, out));
  else if (value && typeof value === "object" && !Array.isArray(value)) for (const [k, v] of Object.entries(value)) flatten(v, key ? `${key}.${k}` : k, out);
  else out.set(key, JSON.stringify(value));
  return out;
}

async function showCompare() {
  const runs = shownRuns();
  for (const run of runs) if (!recipes.has(run.id)) recipes.set(run.id, flatten(await fetch(`/api/runs/${run.id}/recipe`).then(a => a.json()), "", new Map()));
  const home = $("compare"), everything = state.allKeys ?? false;
  const switcher = element("label", null, "field"), box = element("input");
  box.type = "checkbox";
  box.checked = everything;
  box.addEventListener("change", () => { state.allKeys = box.checked; showCompare(); });
  switcher.append(box, " also keys that are equal");
  const header = ["", ...runs.map(run => run.name)], figures = [], keys = [...new Set(runs.flatMap(run => [...recipes.get(run.id).keys()]))];
  for (const metric of ["reward", "loss", "eval_loss", "mean_token_accuracy", "entropy", "kl", "completions/mean_length", "tokens_per_second", "mfu", "memory/peak_gb", ...allMetrics().filter(m => /^eval\/.*accuracy$/.test(m))])
    if (runs.some(run => run.has(metric))) figures.push([metric, ...runs.map(run => numberText(run.has(metric) ? smoothed(run.series.get(metric).values, metric.startsWith("eval") ? 0 : state.smooth).at(-1) : NaN))]);
  figures.unshift(["state", ...runs.map(run => run.state)], ["step", ...runs.map(run => numberText(run.lastStep))], ["training time", ...runs.map(run => durationText(run.seconds))]);
  const rows = keys.map(key => [key, ...runs.map(run => recipes.get(run.id).get(key) ?? "–")]).filter(row => everything || new Set(row.slice(1)).size > 1);
  const results = panel("Last values (smoothed as the charts)", figures, header), recipe = panel("Recipe", rows, header);
  for (const [i, row] of [...recipe.querySelectorAll("tr")].slice(1).entries()) row.classList.toggle("differs", everything && new Set(rows[i].slice(1)).size > 1);
  if (!rows.length) recipe.append(element("p", runs.length < 2 ? "Choose two or more runs at the left to compare their recipes." : "The recipes are equal.", "muted"));
  results.classList.add("scroll");
  recipe.classList.add("scroll");
  const space = element("div", null, "group");
  space.append(switcher);
  home.replaceChildren(results, space, recipe);
}

// ---- The frame

const tabs = [["curves", "Curves", showCurves], ["samples", "Samples", () => openSamples().catch(report)], ["system", "System", showSystem], ["compare", "Compare", () => showCompare().catch(report)]];

function report(problem) { setLive(false, problem.message); }
function setLive(on, text) {
  $("live").className = on ? "on" : "off";
  $("live").lastElementChild.textContent = text;
}

function showRuns() {
  const list = $("runs"), focus = focusRun();
  const key = JSON.stringify([state.findRun, focus?.id, [...state.runs.values()].map(r => [r.id, r.name, r.state, r.shown, r.lastStep])]);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  const active = document.activeElement?.dataset?.run;
  list.replaceChildren(...[...state.runs.values()].filter(run => run.name.toLowerCase().includes(state.findRun.toLowerCase())).map(run => {
    const item = swatch("li", run.color, run === focus ? "focus" : ""), line = element("div", null, "line"), box = element("input"), name = element("button");
    box.type = "checkbox";
    box.checked = run.shown;
    box.setAttribute("aria-label", `Show ${run.name}`);
    box.addEventListener("change", () => {
      run.shown = box.checked;
      stored.write("hidden", [...state.runs.values()].filter(r => !r.shown).map(r => r.facts.path));
      tick(true);
    });
    name.append(element("b", run.name), element("small", `${run.state} · step ${numberText(run.lastStep)}`));
    name.title = `${run.facts.path}\nClick: in focus. Double-click: only this run.`;
    name.dataset.run = run.id;
    name.addEventListener("click", () => { state.focus = run.id; if (!run.shown) { run.shown = true; } tick(true); });
    name.addEventListener("dblclick", () => { for (const other of state.runs.values()) other.shown = other === run; tick(true); });
    const dot = element("span", null, `state ${run.state}`);
    dot.title = run.state;
    line.append(box, element("span", null, "swatch"), name, dot);
    item.append(line);
    return item;
  }));
  if (active) list.querySelector(`[data-run="${active}"]`)?.focus();
}

function show() {
  showRuns();
  tabs.find(([id]) => id === state.tab)[2]();
}
function openTab(id) {
  state.tab = id;
  stored.write("tab", id);
  history.replaceState(null, "", "#" + id);
  for (const button of $("tabs").children) { button.setAttribute("aria-selected", String(button.dataset.tab === id)); button.tabIndex = button.dataset.tab === id ? 0 : -1; }
  for (const [other] of tabs) $(other).hidden = other !== id;
  show();
}

let ticking = false;
async function tick(force) {
  if (ticking) { state.again ||= force; return; }
  ticking = true;
  try {
    const changed = await refresh();
    const running = [...state.runs.values()].filter(run => run.state === "running").length;
    setLive(true, `${running} running, ${state.runs.size} in all`);
    document.title = focusRun() ? `${focusRun().name} · hone watch` : "hone watch";
    const reading = state.tab === "samples" && samples.list.querySelector("details[open]");  // do not fold what is being read
    if (force || (changed && !reading)) show(); else showRuns();
  } catch (problem) { setLive(false, `no answer (${problem.message}); trying again`); }
  ticking = false;
  if (state.again) { state.again = false; tick(true); }
}

function listenToSettings() {
  const bind = (id, member, event, read, restore) => {
    const control = $(id), value = stored.read(member, null);
    if (value !== null) { state[member] = value; restore(control, value); }
    control.addEventListener(event, () => { state[member] = read(control); stored.write(member, state[member]); if (member === "axis") shared.zoom = null; show(); });
  };
  const value = [c => c.value, (c, v) => { c.value = v; }], checked = [c => c.checked, (c, v) => { c.checked = v; }];
  bind("smooth", "smooth", "input", c => Number(c.value), value[1]);
  bind("axis", "axis", "change", ...value);
  bind("log", "log", "change", ...checked);
  bind("outliers", "outliers", "change", ...checked);
  $("stage").addEventListener("change", () => { state.stage = $("stage").value; shared.zoom = null; show(); });
  $("find-run").addEventListener("input", () => { state.findRun = $("find-run").value; showRuns(); });
  $("find-metric").addEventListener("input", () => { state.findMetric = $("find-metric").value; openTab("curves"); });
  $("menu").addEventListener("click", () => $("menu").setAttribute("aria-expanded", String(document.body.classList.toggle("menu"))));
}
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  stored.write("theme", theme);
  redrawAll();
}
function switchTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}

function begin() {
  for (const [id, title] of tabs) {
    const button = element("button", title);
    button.dataset.tab = id;
    button.setAttribute("role", "tab");
    button.setAttribute("aria-controls", id);
    button.addEventListener("click", () => openTab(id));
    $("tabs").append(button);
  }
  $("tabs").addEventListener("keydown", event => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!move) return;
    const at = tabs.findIndex(([id]) => id === state.tab), next = tabs[(at + move + tabs.length) % tabs.length][0];
    openTab(next);
    $("tabs").querySelector(`[data-tab="${next}"]`).focus();
  });
  document.addEventListener("keydown", event => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); document.body.classList.add("menu"); $("find-metric").focus(); }
    if (event.key === "t") switchTheme();
  });
  $("theme").addEventListener("click", switchTheme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  const theme = stored.read("theme", null);
  if (theme) setTheme(theme);
  listenToSettings();
  buildSamples();
  const tab = location.hash.slice(1) || stored.read("tab", "curves");
  openTab(tabs.some(([id]) => id === tab) ? tab : "curves");
  tick(true);
  let waited = 0;
  setInterval(() => { if (!document.hidden || ++waited % 8 === 0) tick(false); }, 1500);
}
begin();
