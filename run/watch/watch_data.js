// Runs and their rows. Each run keeps at most `mostPoints` points of a metric and `mostSamples` samples.

const mostPoints = 6000, mostSamples = 4000;

// One metric of one run. Past mostPoints neighbors are merged, so that memory and drawing time stay bounded.
class Series {
  constructor() { this.steps = []; this.values = []; this.stride = 1; this.pending = []; }
  push(step, value) {
    const last = this.steps.length - 1;
    if (last >= 0 && this.steps[last] === step && !this.pending.length) { this.values[last] = value; return; }  // a later row of a step
    this.pending.push([step, value]);
    if (this.pending.length < this.stride) return;
    this.steps.push(this.pending.at(-1)[0]);
    this.values.push(this.pending.reduce((sum, p) => sum + p[1], 0) / this.pending.length);
    this.pending = [];
    if (this.steps.length >= mostPoints) this.halve();
  }
  halve() {
    const steps = [], values = [];
    for (let i = 0; i + 1 < this.steps.length; i += 2) { steps.push(this.steps[i + 1]); values.push((this.values[i] + this.values[i + 1]) / 2); }
    this.steps = steps;
    this.values = values;
    this.stride *= 2;
  }
}

async function fetchRows(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message ?? `status ${answer.status}`);
  const rows = [];
  for (const line of (await answer.text()).split("\n")) {
    if (!line) continue;
    try { rows.push(JSON.parse(line)); } catch { /* a line that a killed process cut short */ }
  }
  return {about: rows[0] ?? {}, rows: rows.slice(1)};
}

class Run {
  constructor(facts, place) {
    this.id = facts.id;
    this.color = colorOf(place);
    this.shown = true;
    this.log = {samples: []};
    this.forget();
    this.forgetSamples();
    this.update(facts);
  }
  update(facts) { this.facts = facts; this.name = facts.name; this.state = facts.state; }
  forget() {
    this.place = {next: 0, digest: "0"};
    this.series = new Map();
    this.last = new Map();  // metric: [step, value]
    this.stageStarts = [];  // [{step, stage}]
    this.hours = new Series();
    this.tokens = new Series();
    this.seconds = 0; this.lastStep = 0; this.trainStep = 0; this.stageTokens = 0; this.tokensBefore = 0;
    this.version = (this.version ?? 0) + 1;
  }
  forgetSamples() { this.samplePlace = {next: "end", digest: "0"}; this.sampleBegin = null; this.samples = []; }

  // Reads what is new of metrics.jsonl. True if there was something.
  async readMetrics() {
    let any = false;
    for (;;) {
      const {about, rows} = await fetchRows(`/api/runs/${this.id}/metrics/${this.place.next}/${this.place.digest}`);
      if (about.reset) this.forget();
      for (const row of rows) this.addRow(row);
      any ||= rows.length > 0 || Boolean(about.reset);
      const stuck = about.next === this.place.next;
      this.place = {next: about.next, digest: about.digest};
      if (stuck || about.next >= about.size) break;
    }
    if (any) ++this.version;
    return any;
  }
  addRow(row) {
    const step = row.step;
    if (!Number.isFinite(step)) return;
    this.lastStep = Math.max(this.lastStep, step);
    if (Number.isFinite(row.step_time)) {  // rows stand for all steps since the row before (logging_steps)
      this.seconds += row.step_time * Math.max(1, step - this.trainStep);
      this.trainStep = step;
    }
    if (Number.isFinite(row.num_tokens)) {  // counts within a stage
      if (row.num_tokens < this.stageTokens) this.tokensBefore += this.stageTokens;
      this.stageTokens = row.num_tokens;
    }
    this.hours.push(step, this.seconds / 3600);
    this.tokens.push(step, this.tokensBefore + this.stageTokens);
    if (Number.isFinite(row.stage) && this.stageStarts.at(-1)?.stage !== row.stage) this.stageStarts.push({step, stage: row.stage});
    for (const [name, value] of Object.entries(row)) {
      if (name === "step" || name === "stage" || !Number.isFinite(value)) continue;
      if (!this.series.has(name)) this.series.set(name, new Series());
      this.series.get(name).push(step, value);
      this.last.set(name, [step, value]);
    }
  }
  async readSamples() {
    for (let more = true; more;) {
      const {about, rows} = await fetchRows(`/api/runs/${this.id}/samples/${this.samplePlace.next}/${this.samplePlace.digest}`);
      if (about.reset) { this.forgetSamples(); this.sampleBegin = 0; }
      this.sampleBegin ??= about.begin;
      this.samples.push(...rows.filter(row => Number.isFinite(row.step) && typeof row.completion === "string"));
      if (this.samples.length > mostSamples) this.samples.splice(0, this.samples.length - mostSamples);
      more = about.next !== this.samplePlace.next && about.next < about.size;
      this.samplePlace = {next: about.next, digest: about.digest};
    }
  }

  stageName(index) { return this.facts.stages?.[index]?.name ?? `stage ${index}`; }
  has(metric) { return this.series.has(metric); }
  // A metric against the chosen axis.
  points(metric, axis) {
    const series = this.series.get(metric);
    if (!series) return {xs: [], ys: []};
    if (state.stage) return this.pointsOfStage(series);
    if (axis === "step") return {xs: series.steps, ys: series.values};
    const scale = axis === "hours" ? this.hours : this.tokens;
    return {xs: series.steps.map(step => scale.values[nearestIndex(scale.steps, step)] ?? 0), ys: series.values};
  }
  // Within the chosen stage, over its own steps.
  pointsOfStage(series) {
    const at = this.stageStarts.findIndex(({stage}) => this.stageName(stage) === state.stage);
    if (at < 0) return {xs: [], ys: []};
    const first = this.stageStarts[at].step - 1, last = this.stageStarts[at + 1]?.step ?? Infinity;
    const inside = series.steps.map((step, i) => i).filter(i => series.steps[i] > first && series.steps[i] < last);
    return {xs: inside.map(i => series.steps[i] - first), ys: inside.map(i => series.values[i])};
  }
  marks(axis) {
    if (this.stageStarts.length < 2) return [];
    const scale = axis === "hours" ? this.hours : this.tokens;
    return this.stageStarts.map(({step, stage}) => ({x: axis === "step" ? step : scale.values[nearestIndex(scale.steps, step)] ?? 0, label: this.stageName(stage)}));
  }
}

const state = {runs: new Map(), focus: null, tab: "curves", axis: "step", stage: "", smooth: 0.6, log: false, outliers: false, findRun: "", findMetric: ""};
const shownRuns = () => [...state.runs.values()].filter(run => run.shown);
const focusRun = () => state.runs.get(state.focus) ?? shownRuns()[0] ?? [...state.runs.values()][0];

// Settings of the viewer survive a reload.
const stored = {
  read(name, otherwise) { try { return JSON.parse(localStorage.getItem("hone." + name)) ?? otherwise; } catch { return otherwise; } },
  write(name, value) { try { localStorage.setItem("hone." + name, JSON.stringify(value)); } catch { /* private mode */ } },
};

async function refresh() {
  const answer = await fetch("/api/runs");
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const {runs} = await answer.json(), there = new Set(runs.map(facts => facts.id));
  for (const id of [...state.runs.keys()]) if (!there.has(id)) state.runs.delete(id);
  const hidden = stored.read("hidden", []);
  for (const facts of runs) {
    const known = state.runs.get(facts.id);
    if (known) { known.update(facts); continue; }
    const run = new Run(facts, facts.id);
    run.shown = !hidden.includes(facts.path) && (runs.length <= 8 || facts.state === "running" || state.runs.size < 6);
    state.runs.set(facts.id, run);
  }
  let changed = runs.length !== (state.numRuns ?? -1);
  state.numRuns = runs.length;
  for (const run of state.runs.values()) if (run.shown || run === focusRun()) changed = (await run.readMetrics()) || changed;
  return changed;
}
