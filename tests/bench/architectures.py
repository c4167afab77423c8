"""Tables of the runs that tests/bench/architectures.sh left in a folder:

    architectures.py OUT

Writes OUT/tables.md (printed, too), OUT/tables.csv and OUT/load.csv, with means and sample standard deviations over
seeds. A held-out loss is in nats per token. KV bytes are of bf16 numbers: of a token whose layers all keep it, and the
mean over the tokens of a sequence of full length, of which a layer with a window keeps the last ones only.
"""

import csv
import json
import math
import pathlib
import re
import statistics
import sys

TITLES = {
    "moe": "Experts against a dense model",
    "balance": "Balance of a router",
    "attention": "Attention",
    "norms": "Placement of norms over learning rates",
    "muon": "Muon and AdamW over learning rates",
}
LOADS = {"load entropy": "moe/load_entropy", "load violation": "moe/load_violation_max", "least load": "moe/load_min"}
LAST_STEPS = 20  # that load metrics and the training loss are averaged over
POINTS = 60  # of a curve of load.csv, at most


def read_run(folder):
    """The rows of a run, and its report if it has finished."""
    rows = []
    metrics = folder / "metrics.jsonl"
    if metrics.is_file():
        rows = [json.loads(line) for line in metrics.read_text().splitlines() if line.startswith("{")]
    report = folder / "report.json"
    parsed = json.loads(report.read_text()) if report.is_file() else {}
    return rows, parsed if parsed.get("finished") else None


def mean_of(values):
    values = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.fmean(values) if values else None


def figures_of(rows, report):
    """The figures of a finished run."""
    stage = report["stages"][-1]
    steps = [row for row in rows if "loss" in row]
    last = steps[-LAST_STEPS:]
    if not stage["eval"]:
        sys.exit("a run has no evaluation: OVERRIDES must leave eval[0], the held-out loss")
    held_out = stage["eval"][0]["metrics"]
    out = {
        "held-out loss": held_out["nats_per_token"],
        "bits per byte": held_out["bits_per_byte"],
        "training loss": mean_of(row["loss"] for row in last),
        "largest gradient": max(row.get("grad_norm", 0) for row in steps[len(steps) // 10 :]),
        "seconds": stage["seconds"],
    }
    for name, metric in LOADS.items():
        if metric in steps[-1]:
            out[name] = mean_of(row.get(metric) for row in last)
    return out


def kv_bytes(plan, length):
    """Bytes of a token in all layers, and the mean over a sequence of `length` tokens."""
    whole = mean = 0
    for group in plan["kv_groups"]:
        row = 2 * group["planes"] * group["num_kv_heads"] * (group["key_dim"] + group["value_dim"])
        whole += row
        mean += row * (min(group["window"], length) / length if group["window"] else 1)
    return whole, mean


def has_diverged(log):
    """True if the run stopped because its loss or gradient was no number."""
    return bool(re.search(r"step \d+: the [\w ]+ is -?(nan|inf)", log))


def describe(out, variant, seeds):
    """A row of a table: the plan's counts, then mean and deviation of each figure."""
    plan = json.loads((out / "plans" / f"{variant}.json").read_text())
    shape = pathlib.Path(__file__).parents[2] / "configs/architectures" / f"{variant.split('-')[0]}.json"
    config = json.loads(shape.read_text())
    whole, mean = kv_bytes(plan, config["max_position_embeddings"])
    row = {
        "variant": variant,
        "params": plan["params"],
        "active": plan["active_params"],
        "forward MFLOPs": plan["forward_flops_per_token"] * 1e-6,
        "KV bytes": whole,
        "KV bytes in context": mean,
    }
    runs, diverged, failed = [], 0, 0
    for seed in seeds:
        name = f"{variant}-s{seed}"
        rows, report = read_run(out / "runs" / name)
        log = out / "logs" / f"{name}.log"
        if report:
            runs.append(figures_of(rows, report))
        elif log.is_file() and has_diverged(log.read_text(errors="replace")):
            diverged += 1
        else:
            failed += 1
    row |= {"runs": len(runs), "diverged": diverged, "missing": failed}
    for name in runs[0] if runs else []:
        values = [run[name] for run in runs if run.get(name) is not None]
        row[name] = statistics.fmean(values) if values else None
        row[name + " std"] = statistics.stdev(values) if len(values) > 1 else None
    return row


def text_of(row, name):
    value = row.get(name)
    if value is None:
        return "-"
    if isinstance(value, (int, str)):
        return f"{value:,}" if isinstance(value, int) else value
    deviation = row.get(name + " std")
    digits = 1 if value >= 10 else 4
    return f"{value:.{digits}f}" + (f" ± {deviation:.{digits}f}" if deviation is not None else "")


def markdown(rows):
    names = [name for row in rows for name in row if not name.endswith(" std")]
    names = [name for name in dict.fromkeys(names) if name != "missing" or any(row["missing"] for row in rows)]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return lines + ["| " + " | ".join(text_of(row, name) for name in names) + " |" for row in rows]


def load_rows(out, variants, seeds):
    """Load metrics over steps, means over the seeds that have the step."""
    for variant in variants:
        steps = {}
        for seed in seeds:
            for row in read_run(out / "runs" / f"{variant}-s{seed}")[0]:
                if LOADS["load entropy"] in row:
                    steps.setdefault(row["step"], []).append(row)
        stride = max(1, math.ceil(len(steps) / POINTS))
        for index, step in enumerate(sorted(steps)):
            if index % stride == 0 or index + 1 == len(steps):
                means = [mean_of(row.get(metric) for row in steps[step]) for metric in LOADS.values()]
                yield [variant, step, len(steps[step]), *means]


def main():
    out = pathlib.Path(sys.argv[1])
    pairs = [line.split("\t") for line in (out / "parts.tsv").read_text().splitlines()]
    planned = {path.stem for path in (out / "plans").glob("*.json")}
    logs = [path.stem.rpartition("-s") for path in (out / "logs").glob("*.log")]
    seeds = sorted({int(seed) for _, _, seed in logs})
    rows = [{"part": part} | describe(out, variant, seeds) for part, variant in pairs if variant in planned]
    lines = []
    for part in dict.fromkeys(row["part"] for row in rows):
        lines += [f"## {TITLES[part]}", ""]
        lines += markdown([{k: v for k, v in row.items() if k != "part"} for row in rows if row["part"] == part]) + [""]
    missing = sorted({variant for _, variant in pairs} - planned)
    if missing:
        lines += ["No run of: " + ", ".join(missing), ""]
    (out / "tables.md").write_text("\n".join(lines))
    print("\n".join(lines))
    with open(out / "tables.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    with open(out / "load.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variant", "step", "runs", *LOADS])
        writer.writerows(load_rows(out, [variant for part, variant in pairs if part == "balance"], seeds))


if __name__ == "__main__":
    main()
