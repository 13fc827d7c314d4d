#!/usr/bin/env bash
# Fewer threads than planned, whoever keeps them away: the same numbers, or a sentence.
# label: once
source tests/cli_helpers.bash

model=(--model gpt2-tiny --batch 4 --lr 0.01 --threads 2)
bench=(bench train "${model[@]}" --repeat 1)

want=$(sha "${bench[@]}")
[[ $want ]] || fail "no hash"
[[ $(report "${bench[@]}" | field threads_counted) == 2 ]] || fail "the report does not say how many threads have come"

# ---- what changes nothing ----
for words in OMP_DYNAMIC=true OMP_MAX_ACTIVE_LEVELS=0 OMP_NUM_THREADS=1 OMP_NESTED=false OMP_NESTED=true \
    OMP_PLACES={0} GOMP_CPU_AFFINITY=0 OMP_PROC_BIND=true OMP_WAIT_POLICY=passive OMP_THREAD_LIMIT=2 \
    "OMP_DYNAMIC=true OMP_MAX_ACTIVE_LEVELS=0 OMP_NUM_THREADS=7"; do
    got=$(export ${words?} && sha "${bench[@]}")
    [[ $got == "$want" ]] || fail "$words: $got"
done

# ---- ranks with more threads than cores: waiting threads sleep, unless the user decides ----
# spins THREADS: how often a waiting thread of OpenMP looks before it sleeps, a line for each rank.
spins() {
    env -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$WEFT" train --model mlp --data synthetic --batch 4 --steps 1 --ranks 2 --quiet --threads "$1" 2>&1 |
        sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" | tail -n +2 # without the launcher
}
n=$(($(nproc) > 1 ? $(nproc) : 2))
if [[ $(spins 1) ]]; then # libgomp
    [[ $(spins 1 | sort -u) != 0 ]] || fail "ranks with a thread each: waiting threads sleep at once"
    [[ $(spins $n | sort -u) == 0 ]] || fail "2 ranks with $n threads each: waiting threads spin: $(spins $n)"
    [[ $(OMP_WAIT_POLICY=active spins $n | sort -u) != 0 ]] || fail "OMP_WAIT_POLICY=active: waiting threads do not spin"
fi

# ---- what cannot be mended is refused, by whatever computes ----
export OMP_THREAD_LIMIT=1
sentence="rank 0: 2 threads are planned, but OpenMP starts 1"
expect 2 "$sentence" "${bench[@]}"
expect 2 "OMP_THREAD_LIMIT is '1'" "${bench[@]}"
expect 2 "give --threads 1" "${bench[@]}"
expect 2 "2 threads are planned" "${bench[@]}" --plan pp=2
expect 2 "2 threads are planned" "${bench[@]}" --plan dp=2 --ranks 2
expect 2 "$sentence" train "${model[@]}" --data synthetic --steps 1
expect 2 "$sentence" plan "${model[@]}" --data synthetic --costs measured
[[ $(sha "${bench[@]}" --threads 1) ]] || fail "--threads 1 is refused, too"
unset OMP_THREAD_LIMIT
"$WEFT" train "${model[@]}" --data synthetic --steps 1 --out "$folder/run" --quiet || fail "train"
OMP_THREAD_LIMIT=1 expect 2 "$sentence" eval --model gpt2-tiny --batch 4 --threads 2 --data synthetic --init "$folder/run/model.safetensors"

# ---- small stacks ----
for words in "" "--plan dp=2" "--plan dp=2 --ranks 2"; do
    got=$(ulimit -s 128 && sha "${bench[@]}" $words)
    [[ $got == "$want" ]] || fail "ulimit -s 128, $words: $got"
done
(ulimit -s 128 && expect 2 "there is no command" nonsense)

# ---- threads that the system does not let start: OpenMP would end the process without a word ----
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then
    chmod 755 "$folder"
    mkdir "$folder/bin" && cp "$WEFT" "$(dirname "$WEFT")"/libweft*.so.* "$folder/bin"
    # Limits do not bind root; nobody else has this number, so nobody else's processes count.
    limited() {
        setpriv --reuid 2145678901 --regid 2145678901 --clear-groups env LD_LIBRARY_PATH="$folder/bin" \
            bash -c "ulimit -u $1; cd /; exec $folder/bin/weft ${bench[*]} --threads 4 --quiet --json -" 2>&1
    }
    n_refused=0
    for ((n = 1; n <= 24; n++)); do
        got=$(limited "$n") && { [[ $(field weights_sha256 <<<"$got") ]] || fail "$n processes: no hash"; break; }
        [[ $got == "weft: "* && $got != *libgomp* ]] || fail "$n processes: $got"
        [[ $got == *"4 threads are planned, but the system lets only "* ]] && n_refused=$((n_refused + 1))
    done
    ((n <= 24)) || fail "no limit is enough: $got"
    ((n_refused >= 1)) || fail "no limit was foreseen"
fi
finish
