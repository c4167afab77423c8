#!/usr/bin/env bash
# Runs GPU tests under compute-sanitizer, each in its own process and with few cases (HONE_GPU_CASES in gpu_check.h):
#   sanitize.sh PROGRAM FOLDER [TOOL...]     tools: racecheck initcheck memcheck; default: all
# FOLDER gets the output of each test. Fails if a test fails or times out, and for each report except
# racecheck's reports of cuBLASLt's kernels.
# Environment: CUDA_VISIBLE_DEVICES; SANITIZE_JOBS, tests at a time; SANITIZE_SECONDS, time limit of a test;
# SANITIZE_FILTER, a regular expression of test names.
set -euo pipefail
export program=$1 folder=$2 seconds=${SANITIZE_SECONDS:-600} HONE_GPU_CASES=${HONE_GPU_CASES:-11}
shift 2
[ $# -gt 0 ] || set -- racecheck initcheck memcheck
sanitizer=$(command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' | head -1) ||
  { echo "compute-sanitizer is missing: it comes with the CUDA Toolkit" >&2; exit 1; }
export sanitizer
count=$(nvidia-smi --list-gpus | wc -l) || { echo "no GPU: nvidia-smi lists none" >&2; exit 1; }
jobs=${SANITIZE_JOBS:-$(($(nproc) * 2 / 3))}
IFS=, read -ra gpus <<<"${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((count - 1)))}"
mkdir -p "$folder"
: >"$folder/results.txt"

# run_one TOOL TEST GPUS: GPUS are all visible GPUs, the one to use first.
run_one() {
  local log="$folder/$1.${2//\//_}.txt" begin=$SECONDS rc=0 reports library=0 word=clean
  CUDA_VISIBLE_DEVICES=$3 timeout -k 5 "$seconds" "$sanitizer" --max-connections 256 --tool "$1" --print-limit 0 "$program" --gtest_filter="$2" >"$log" 2>&1 || rc=$?
  reports=$(grep -oE 'SUMMARY: [0-9]+' "$log" | tail -1 | grep -oE '[0-9]+' || echo unknown)
  if [ "$1" = racecheck ] && [ "$reports" != unknown ]; then   # the first line of a report names the kernel
    library=$(grep -cE '^=+ (Error|Warning): Race reported .* (nvjet_|.*cublasLt::)' "$log" || true)
    reports=$((reports - library))
  fi
  if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then word="not ended in $seconds s"
  elif [ "$rc" != 0 ] || grep -q '^\[  FAILED' "$log"; then word="failed ($rc)"
  elif [ "$reports" != 0 ]; then word="$reports reports"
  elif grep -q '^\[  SKIPPED' "$log"; then word=skipped
  elif ! grep -q '^\[  PASSED  \] 1 test' "$log"; then word="did not run"; fi
  [ "$library" = 0 ] || word="$word, $library in kernels of cuBLASLt"
  printf '%-9s %-88s %5d s  %s\n' "$1" "$2" $((SECONDS - begin)) "$word" >>"$folder/results.txt"
}
export -f run_one

# NCCL's tests run none of hone's kernels. Long tests come first.
"$program" --gtest_list_tests | awk '/^[^ ].*\./ { suite = $1; next } /^  / && suite !~ /DeviceLink/ { print suite $1 }' | { grep -E "${SANITIZE_FILTER:-.}" || true; } |
  awk '/Trainer|Sampl|Lora|Propos|Think|Threads|Famil|ProjectBetween|RowsDoNotDepend/ { print; next } { rest[n++] = $0 } END { for (i = 0; i < n; i++) print rest[i] }' >"$folder/tests.txt"
for tool in "$@"; do sed "s/^/$tool /" "$folder/tests.txt"; done |
  awk -v gpus="${gpus[*]}" 'BEGIN { n = split(gpus, gpu, " ") }
    { seen = gpu[NR % n + 1]; for (i = 1; i < n; i++) seen = seen "," gpu[(NR + i) % n + 1]; print $0, seen }' |
  xargs -r -P "$((jobs > 0 ? jobs : 1))" -L 1 bash -c 'run_one "$@"' run_one
sort "$folder/results.txt" | grep -v ' clean$' || true
all=$(($(wc -l <"$folder/tests.txt") * $#)) clean=$(grep -cE ' s  clean($|,)' "$folder/results.txt" || true) skipped=$(grep -cE ' s  skipped($|,)' "$folder/results.txt" || true)
echo "$clean of $all are clean, $skipped skipped"
[ "$clean" -gt 0 ] && [ $((clean + skipped)) = "$all" ]
