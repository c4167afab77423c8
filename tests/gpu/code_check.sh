#!/usr/bin/env bash
# Reads the CUDA code of a program or object with cuobjdump:
#   code_check.sh PROGRAM
# 1. Machine code has no instruction above the capability that it claims.
# 2. PTX is for compute capability 8.0.
# 3. Every kernel fits every capability at launch: static shared memory up to 48 KB, and the registers of a thread block
#    up to 65,536. The largest thread block is .maxntid of the PTX, or 1,024 threads for a kernel without it.
# Dynamic shared memory is checked by tests/kernels/cuda_limits_test.cpp.
# Exits with 0 if all is well, 1 with a line for each finding, 77 if cuobjdump or nvdisasm is missing.
set -euo pipefail
program=$1
find_tool() { command -v "$1" || compgen -G "/usr/local/cuda*/bin/$1" | head -1; }
if ! cuobjdump=$(find_tool cuobjdump) || ! nvdisasm=$(find_tool nvdisasm); then
  echo "skipped: cuobjdump and nvdisasm are missing; they come with the CUDA Toolkit (cuda-cuobjdump, cuda-nvdisasm)" >&2
  exit 77
fi
PATH="$(dirname "$nvdisasm"):$PATH"   # cuobjdump calls it
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Instructions of machine code, by the first capability that has them.
first_90='HGMMA|IGMMA|QGMMA|BGMMA|WARPGROUP[A-Z]*|WARPGROUPSET|UTMA[A-Z]*|UBLK[A-Z]*|UCGABAR_[A-Z]*|CGABAR[A-Z_]*|CCTLT|ELECT|USETMAXREG|ACQBULK|PREEXIT|STAS|FENCE\.VIEW[A-Z.]*|UTMACMDFLUSH'
first_100='UTC[A-Z]*MMA|UTCBAR|UTCCP|UTCSHIFT|UTCATOMSWS|LDTM|STTM'
first_89='F2FP\.[A-Z0-9.]*E[45]M[32][A-Z0-9._]*|QMMA[A-Z0-9.]*'

architectures=$("$cuobjdump" --list-elf "$program" 2>/dev/null | grep -oE 'sm_[0-9]+a?\.' | tr -d . | sort -u || true)
ptx=$("$cuobjdump" --list-ptx "$program" 2>/dev/null || true)
[ -n "$architectures$ptx" ] || { echo "$program has no CUDA code" >&2; exit 1; }
: >"$work/found"
: >"$work/usage"
for architecture in $architectures; do
  number=${architecture//[!0-9]/}
  above=""
  [ "$number" -ge 89 ] || above+="|$first_89"
  [ "$number" -ge 90 ] || above+="|$first_90"
  { [ "$number" -ge 100 ] && [ "$number" -lt 120 ]; } || above+="|$first_100"
  # A line of code is "/*0040*/   @P0 OPCODE.FLAGS ... ;".
  "$cuobjdump" -sass -arch "$architecture" "$program" |
    awk -v above="^(${above#|})([.;]|\$)" -v architecture="$architecture" '
      /Function :/ { function_name = $NF }
      $1 ~ /^\/\*[0-9a-f]+\*\/$/ {
        ++lines
        at = 2
        if ($at ~ /^@/) ++at
        opcode = $at
        sub(/;$/, "", opcode)
        if (opcode ~ above && !seen[function_name, opcode]++) print architecture ": " function_name " has " opcode
      }
      END { printf "%s: %d instructions read\n", architecture, lines > "/dev/stderr" }' >>"$work/found"
  # "Function NAME:" and then "REG:40 STACK:0 SHARED:1024 ...".
  "$cuobjdump" --dump-resource-usage -arch "$architecture" "$program" 2>/dev/null |
    awk -v architecture="$architecture" '
      /Function / { name = $2; sub(/:$/, "", name) }
      /REG:/ {
        for (i = 1; i <= NF; ++i) { split($i, pair, ":"); use[pair[1]] = pair[2] }
        print architecture, name, use["REG"], use["SHARED"]
      }' >>"$work/usage"
done

if [ -n "$ptx" ]; then
  "$cuobjdump" -ptx "$program" >"$work/ptx"
  grep -E '^\.target' "$work/ptx" | sort -u | { grep -vE '^\.target sm_80([, ]|$)' || true; } | sed 's/^/PTX is for another capability than 8.0: /' >>"$work/found"
  awk '/\.entry / { name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name) } /^\.maxntid/ { gsub(",", ""); print name, $2 * ($3 ? $3 : 1) * ($4 ? $4 : 1) }' "$work/ptx" >"$work/threads"
  # Registers are allocated to warps, eight per thread at a time.
  awk 'NR == FNR { threads[$1] = $2; next }
    {   # from 9.0 on the number includes 1 KB that the driver reserves
      capability = $1
      gsub(/[^0-9]/, "", capability)
      if ($4 - (capability >= 90 ? 1024 : 0) > 49152) print $1 ": " $2 " has " $4 " bytes of static shared memory"
    }
    $1 !~ /a$/ || $2 in threads {
      most = $2 in threads ? threads[$2] : 1024
      registers = int(($3 + 7) / 8) * 8 * int((most + 31) / 32) * 32
      if (registers > 65536) print $1 ": " $2 " has " $3 " registers, too many for " most " threads"
    }' "$work/threads" "$work/usage" >>"$work/found"
fi
cat "$work/found"
echo "$(wc -l <"$work/usage") kernels of" ${architectures:-PTX} "were read, $(wc -l <"$work/found") findings"
[ ! -s "$work/found" ]
