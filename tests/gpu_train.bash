# Sourced by the tests of training on a kind of devices other than the CPU, $kind: the losses of the CPU up
# to rounding, one rank's bits under every plan, as many bytes as planned.
# WEFT_TEST_FULL=1: 20 steps instead of 2.
source tests/cli_helpers.bash
steps=2
[[ ${WEFT_TEST_FULL:-0} == 1 ]] && steps=20

train=(train --data synthetic --threads 1 --seed 1)

# on DEVICES OPTIONS...: trains, and leaves the report in $folder/report.
on() {
    local devices=$1
    shift
    "$WEFT" "${train[@]}" --steps "$steps" --batch 4 --micro 4 --lanes 4 "$@" --devices "$devices" --json "$folder/report" \
        >"$folder/out" 2>&1 || fail "$*, $devices: $(tail -n 1 "$folder/out")"
    ! grep "stand-in: left" "$folder/out" || fail "$*, $devices: the device keeps what is above"
    python3 - "$folder/report" <<'PY' || fail "$*, $devices: planned and measured bytes differ"
import json, sys
peak = json.load(open(sys.argv[1]))["peak_bytes"]
sys.exit(peak["planned"] != peak["measured"])
PY
}
losses() { sed -n '/"losses"/,/]/p' "$folder/report" | grep -oE '[0-9]+\.[0-9e+-]+' | tr '\n' ' '; }

# near DISTANCE OPTIONS...: of each loss, relatively, to the CPU's.
near() {
    local distance=$1 want got
    shift
    on cpu:1 "$@"
    want=$(losses)
    on "$kind:1" "$@"
    got=$(losses)
    one=$(field weights_sha256 <"$folder/report")
    are_near "$distance" "$got" "$want" || fail "$*: losses $got, the CPU has $want"
}
# are_near DISTANCE LOSSES LOSSES
are_near() {
    awk -v a="$2" -v b="$3" -v most="$1" 'BEGIN {
        n = split(a, x, " "); m = split(b, y, " ")
        for (i = 1; i <= n; i++) { d = (x[i] - y[i]) / y[i]; if (d < 0) d = -d; if (!(d <= most)) exit 1 }
        exit n != m || n == 0 }'
}
# same RANKS PLAN OPTIONS...: the bits of one rank, which `near` has found.
same() {
    local ranks=$1 plan=$2
    shift 2
    on "$kind:$ranks" --plan "$plan" "$@"
    [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "$*, $plan: not one rank's bits"
}
# two_kinds OPTIONS...: of two stages each has the bits of its own kind, whatever the schedule.
two_kinds() {
    local devices
    for devices in "cpu:0,$kind:0" "$kind:0,cpu:0"; do
        on "$devices" --plan pp=2,schedule=gpipe "$@"
        one=$(field weights_sha256 <"$folder/report")
        on "$devices" --plan pp=2,schedule=zb2 "$@"
        [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "$devices: other bits by another schedule"
    done
}
