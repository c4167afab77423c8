#!/usr/bin/env bash
# Compares two builds of hone on MMLU (14,042 questions, 5-shot) in one run on one machine:
#   mmlu_speed.sh OLD_HONE NEW_HONE MODEL [OPTION...]     options of hone eval for both: --limit 200, --device cuda, ...
# HONE_DATA names the folder with eval/mmlu_test.jsonl.gz and eval/mmlu_dev.jsonl. Prints the seconds of each run, the
# log lines about the work, and the ratio. Fails if a log-likelihood differs in a bit.
# Environment: RUNS, runs of each build (default 3; the fastest counts); NEW_OPTIONS, further options of the new build.
set -euo pipefail
old=$1 new=$2 model=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
task="$here/../../configs/tasks/mmlu.toml"
: "${HONE_DATA:?set it to the folder that holds eval/mmlu_test.jsonl.gz}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# measure NAME HONE OPTION...: prints the seconds of the fastest run. A build without sharing has no line about it.
measure() {
  local name=$1 program=$2 best=
  shift 2
  for run in $(seq "${RUNS:-3}"); do
    "$program" eval --model "$model" --tasks "$task" --json --out "$folder/$name" "$@" \
      >"$folder/$name.json" 2>"$folder/$name.log" || { cat "$folder/$name.log" >&2; exit 1; }
    seconds=$(grep -o '"seconds": [0-9.e+-]*' "$folder/$name.json" | cut -d' ' -f2)
    echo "$name run $run: $seconds s$(grep -o ' I eval: computed .*' "$folder/$name.log" | cut -c3- || true)" >&2
    best=$(awk -v a="$seconds" -v b="${best:-$seconds}" 'BEGIN { print a < b ? a : b }')
  done
  echo "$best"
}

# shellcheck disable=SC2086
new_seconds=$(measure new "$new" "$@" ${NEW_OPTIONS:-})
old_seconds=$(measure old "$old" "$@")
awk -v a="$old_seconds" -v b="$new_seconds" \
  'BEGIN { printf "old %.2f s, new %.2f s: %.1f times as fast\n", a, b, a / b }'
logps() { grep -o '"doc_id": [0-9]*\|"logp": \[[^]]*\]' "$folder/$1/samples_mmlu.jsonl"; }
if cmp <(logps old) <(logps new); then
  echo "equal bits: $(logps new | grep -c logp) problems"
else
  echo "the log-likelihoods differ" >&2
  exit 1
fi
