#!/usr/bin/env bash
# weft bench allreduce: rows, fields, traffic by rank, each option, peers that are scripts.
# label: once long
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

bench=(bench allreduce --bytes 4096 --repeat 1)
run() { report_of "$1" "${bench[@]}" "${@:2}"; } # NAME OPTIONS...
values() { field "$2" <"$folder/$1.json" | tr '\n' ' '; }
list() { sed -n "/\"$2\": \[/,/\]/p" "$folder/$1.json" | tr -dc '0-9\n' | grep . | tr '\n' ' '; }
tested=(--json)

# ---- rows, fields, what each rank moves ----
run plain --ranks 4 --bytes 4KiB,40 --algorithm root,ring,direct --wire inproc,shm --out "$folder/pictures"
[[ $(values plain wire | tr ' ' '\n' | sort | uniq -c | tr -s ' \n' ' ') == " 6 inproc 6 shm " ]] || fail "--wire: rows of $(values plain wire)"
[[ $(values plain algorithm | tr ' ' '\n' | sort | uniq -c | tr -s ' \n' ' ') == " 4 direct 4 ring 4 root " ]] || fail "--algorithm: rows of $(values plain algorithm)"
[[ $(values plain bytes | tr ' ' '\n' | sort | uniq -c | tr -s ' \n' ' ') == " 6 40 6 4096 " ]] || fail "--bytes: rows of $(values plain bytes)"
[[ $(values plain ranks | tr ' ' '\n' | sort | uniq -c | tr -s ' \n' ' ') == " 13 4 " ]] || fail "--ranks: $(values plain ranks)"
for name in time_us stream_time_us algbw_gb_s busbw_gb_s; do
    [[ $(field $name <"$folder/plain.json" | awk '$1 > 0' | wc -l) == 12 ]] || fail "not every row has a $name"
done
awk '/"bytes"/ { bytes = $2 + 0 } /"time_us"/ { us = $2 + 0 } /"busbw_gb_s"/ { d = ($2 + 0) * us * 1e3 / (bytes * 1.5) - 1; if (d * d > 1e-9) exit 1 }' \
    "$folder/plain.json" || fail "busbw is not 2 (n - 1) / n of bytes over time"
[[ $(field copy_gb_s <"$folder/plain.json" | awk '$1 > 0' | wc -l) == 1 ]] || fail "no copy_gb_s"
grep -c "every sum was checked" "$folder/plain.out" >/dev/null || fail "no table"
run root --ranks 4 --algorithm root --wire shm
[[ $(list root sent_bytes) == "12288 4096 4096 4096 " && $(list root received_bytes) == "12288 4096 4096 4096 " ]] ||
    fail "root: the parameter device sends $(list root sent_bytes)and receives $(list root received_bytes)"
run ring --ranks 4 --algorithm ring --wire shm
[[ $(list ring sent_bytes) == "6144 6144 6144 6144 " && $(list ring received_bytes) == "6144 6144 6144 6144 " ]] ||
    fail "ring: ranks send $(list ring sent_bytes)and receive $(list ring received_bytes)"
grep -c '^root,0,3,3,' "$folder/pictures/allreduce_traffic.csv" >/dev/null || fail "--out: no traffic"
[[ $(grep -c '^ring,' "$folder/pictures/allreduce_shm.csv") == 2 ]] || fail "--out: no times"
if command -v gnuplot >/dev/null; then
    for name in allreduce_inproc allreduce_shm allreduce_traffic; do [[ -s $folder/pictures/$name.png ]] || fail "--out: no $name.png"; done
fi
tested+=(--ranks --bytes --algorithm --wire --out)

# ---- --repeat, --memory, defaults, more ranks than cores ----
run other --repeat 3 --ranks 2 --algorithm direct --wire inproc --memory plain
[[ $(list other rounds_us | wc -w) == 3 && $(values other repeat) == "3 " ]] || fail "--repeat 3: $(list other rounds_us)"
[[ $(values other memory) == "plain " && $(values root memory) == "shared " ]] || fail "--memory"
grep -c "ordinary memory" "$folder/other.out" >/dev/null || fail "--memory: not said"
run other
[[ $(values other algorithm | wc -w) == 10 ]] || fail "default: rows of $(values other algorithm)"
run other --ranks 9 --wire inproc,shm --algorithm auto
[[ $(values other algorithm) == "auto auto " ]] || fail "9 ranks: rows of $(values other algorithm)"
run other --ranks 65 --wire inproc --algorithm root --bytes 4
[[ $(list other sent_bytes | wc -w) == 65 && $(list other received_bytes) == "256 4 4 "* ]] ||
    fail "65 ranks: they receive $(list other received_bytes)"
tested+=(--repeat --memory)

# ---- ranks that somebody else has started ----
"$WEFT" run -n 3 -- "$WEFT" "${bench[@]}" --algorithm tree --repeat 2 --json "$folder/started.json" >"$folder/said" 2>&1 || fail "weft run: $(cat "$folder/said")"
[[ $(values started ranks) == "3 3 " && $(values started wire) == "shm " && $(list started rounds_us | wc -w) == 2 ]] || fail "weft run: rows of $(values started wire)"
expect 2 "ranks that are threads" run -n 2 -- "$WEFT" "${bench[@]}" --wire inproc
expect 2 "start it once" run -n 2 -- "$WEFT" "${bench[@]}" --peers

# ---- peers: any programs that write such a report ----
mkdir "$folder/bin"
cat >"$folder/bin/python" <<'SCRIPT'
#!/bin/sh
for word; do case $word in --json=*) report=${word#--json=} ;; esac; done
case $0 in *python) [ "${RANK:-0}" = 0 ] || exit 0 ;; esac
case $0 in *python*) version="Open MPI v1" ;; esac
echo "{\"version\": \"${VERSION-$version}\", \"rows\": [{\"bytes\": 4096, \"time_us\": 500}]}" >"$report"
SCRIPT
cat >"$folder/bin/mpicc" <<'SCRIPT'
#!/bin/sh
[ "$1 $2 $3" = "-O2 -o $3" ] && [ -r "$4" ] && printf '#!/bin/sh\nexit 1\n' >"$3" && chmod +x "$3"
SCRIPT
cat >"$folder/bin/mpirun" <<'SCRIPT'
#!/bin/sh
echo "mpirun was called"
exec "${0%mpirun}python" "$@"
SCRIPT
chmod +x "$folder"/bin/*
PATH=$folder/bin:$PATH run peers --algorithm direct --wire shm --ranks 2 --peers --python "$folder/bin/python"
[[ $(values peers wire) == "shm open-mpi gloo " && $(values peers algorithm) == "direct mpi gloo " ]] || fail "--peers: rows of $(values peers wire): $(cat "$folder/peers.out")"
[[ $(field open_mpi <"$folder/peers.json" | awk '$1 > 0' | wc -l) == 1 ]] || fail "--peers: no ratio"
grep -c "as fast as Open MPI, .* as fast as gloo" "$folder/peers.out" >/dev/null || fail "--peers: no ratio is said"
VERSION="MPICH 9" PATH=$folder/bin:$PATH run peers --algorithm direct --wire shm --ranks 2 --peers --python "$folder/bin/python"
[[ $(values peers wire) == "shm gloo " && $(values peers no_open_mpi) == *MPICH* ]] || fail "--peers: takes MPICH for Open MPI"
printf '#!/bin/sh\necho "mpi.h: there is none" >&2\nexit 1\n' >"$folder/bin/mpicc"
PATH=$folder/bin:$PATH run peers --algorithm direct --wire shm --ranks 2 --peers --python "$folder/bin/none"
[[ $(values peers wire) == "shm " ]] || fail "--peers: rows of peers that are not there"
[[ $(values peers no_open_mpi) == *"mpi.h: there is none"* && $(field no_gloo <"$folder/peers.json" | wc -l) == 1 ]] || fail "--peers: does not say what is missing: $(cat "$folder/peers.out")"
tested+=(--peers --python)

# ---- --quiet, and the report alone on standard output ----
[[ -z $("$WEFT" "${bench[@]}" --ranks 2 --quiet 2>&1) ]] || fail "--quiet: says something"
"$WEFT" "${bench[@]}" --ranks 2 --json - 2>"$folder/said" | sed -n '1p;$p' | tr -d '\n' | grep -cx '{}' >/dev/null || fail "--json -: more than the report"
tested+=(--quiet)

# ---- what an algorithm cannot do on a wire is left out, and said; alone it is refused ----
run other --ranks 2 --algorithm engine,root --wire shm
[[ $(values other algorithm) == "root engine " ]] || fail "engine on shm: $(values other algorithm)"
grep -c '"why": "' "$folder/other.json" >/dev/null || fail "engine on shm: no reason in the report"
grep -c "left out: engine on shm: " "$folder/other.out" >/dev/null || fail "engine on shm: not said"
expect 2 "engine" "${bench[@]}" --ranks 2 --algorithm engine --wire shm
expect 2 "engine" "${bench[@]}" --ranks 2 --algorithm engine --wire inproc

# ---- over MPI: mpirun starts the ranks ----
if mpirun --version 2>/dev/null | grep -c "Open MPI" >/dev/null; then
    OMPI_MCA_btl_vader_single_copy_mechanism=none run mpi --ranks 2 --bytes 4096,1048576 --algorithm pairwise,engine --wire mpi
    [[ $(values mpi algorithm) == "pairwise engine pairwise engine " && $(values mpi wire) == "mpi mpi mpi mpi " ]] ||
        fail "mpi: rows of $(values mpi algorithm): $(cat "$folder/mpi.out")"
    [[ $(field time_us <"$folder/mpi.json" | awk '$1 > 0' | wc -l) == 4 ]] || fail "mpi: times of $(values mpi time_us)"
    [[ $(grep -c '"sent_bytes": null' "$folder/mpi.json") == 2 && $(sed -n '/"sent_bytes": \[/,/\]/p' "$folder/mpi.json" | tr -dc '0-9\n' | xargs) == "4096 4096 1048576 1048576" ]] ||
        fail "mpi: what ranks send: $(grep -A3 sent_bytes "$folder/mpi.json")"
else
    echo "left out: the wire mpi; mpirun is not there, or not Open MPI's"
fi

"$WEFT" run -n 2 -- "$WEFT" "${bench[@]}" --algorithm root --wire shm,mpi --json "$folder/both.json" >"$folder/both.out" 2>&1 || fail "shm,mpi: $(cat "$folder/both.out")"
grep -c "left out: root on mpi: the wire 'mpi' does not reach all ranks; shm can" "$folder/both.out" >/dev/null || fail "shm,mpi: $(cat "$folder/both.out")"

# ---- bad lists ----
expect 2 "'4 apples' is not a size" "${bench[@]}" --bytes "4KiB,4 apples"
expect 2 "a multiple of 4" "${bench[@]}" --bytes 4095
expect 2 "a multiple of 4" "${bench[@]}" --bytes 0
expect 2 "is listed twice" "${bench[@]}" --bytes 4KiB,4096
expect 2 "--bytes is empty; it needs a value: LIST" "${bench[@]}" --bytes ""
expect 2 "there is no 'star'; there are root, ring" "${bench[@]}" --algorithm ring,star
expect 2 "is listed twice" "${bench[@]}" --algorithm ring,ring
expect 2 "there is no ''; there are" "${bench[@]}" --algorithm ring,,root
expect 2 "there is no 'tcp'; there are inproc" "${bench[@]}" --wire tcp
expect 2 "2 to " "${bench[@]}" --ranks 1
expect 2 "2 to " "${bench[@]}" --ranks 1025
expect 2 "--repeat must be" "${bench[@]}" --repeat 0
expect 2 "it is for --peers" "${bench[@]}" --python python3
expect 2 "not one of shared|plain" "${bench[@]}" --memory some
expect 1 "cannot be written" "${bench[@]}" --json "$folder/none/r.json"

# ---- an interruption while a picture is drawn: no report ----
mkdir "$folder/fake"
printf '#!/bin/bash\nkill -INT $PPID\nexec sleep 600\n' >"$folder/fake/gnuplot" && chmod +x "$folder/fake/gnuplot"
PATH=$folder/fake:$PATH expect 130 "interrupted; no results have been written" "${bench[@]}" --ranks 2 --out "$folder/drawn" --json "$folder/drawn.json"
[[ ! -e $folder/drawn.json ]] || fail "interrupted while it draws: there is a report"

# ---- none was forgotten; nothing is left behind ----
expect_all_tested bench allreduce
TMPDIR=$folder "$WEFT" "${bench[@]}" --quiet --ranks 2 || fail "with TMPDIR"
compgen -G "$folder/weft-bench-*" >/dev/null && fail "a folder is left behind"
finish
