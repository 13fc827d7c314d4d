#!/usr/bin/env bash
# Completion of commands, options and values, as weft itself gives it and as the shells show it.
# label: once
source tests/cli_helpers.bash

# gives "CANDIDATES" WORDS...: of the last word.
gives() {
    local want=$1 got
    shift
    got=$("$WEFT" help --complete "$@" | tr '\n' ' ')
    [[ ${got% } == "$want" ]] || fail "weft $*: '${got% }', not '$want'"
}
gives "bench" be
[[ $("$WEFT" help --complete "" | grep -cx bench) == 1 ]] || fail "bench is offered several times"
gives "allreduce async" bench a
gives "bench" help be
gives "--momentum" train --mom
gives "resnet18 resnet34 resnet50" train --model res
gives "--model=resnet18 --model=resnet34 --model=resnet50" train --model=res
gives "adam adamw" bench train --optimizer a
gives "dp=2,schedule=" train --plan dp=2,sch
gives "dp=2,schedule=gpipe" train --plan dp=2,schedule=g
gives "--plan=pp=2,offload=state+params" train --plan=pp=2,offload=state+pa
gives "auto" train --plan au
gives "dp=2,allreduce=ring" plan --plan dp=2,allreduce=ri
gives "gpipe" simulate --schedule g
gives "mpi" train --wire m
gives "ring,tree" bench allreduce --algorithm ring,t
gives "synthetic :files 0" train --data s
gives ":files 6" train --out=ru
gives ":files 0" run -n 2 -- pro
gives "" train --seed 1
gives "" nothing --model
for command in train "bench train" simulate info; do
    # shellcheck disable=SC2086
    for option in $("$WEFT" $command --help=all | grep -o '^  --[a-z0-9-]*'); do
        "$WEFT" help --complete $command -- 2>/dev/null | grep -x -- "$option" >/dev/null || fail "weft $command: $option is not offered"
    done
done

# ---- bash ----
mkdir -p "$folder/some/runs-of-mine"
PATH=$(realpath "$(dirname "$WEFT")"):$PATH
source cli/completion/weft.bash
in_bash() {
    local want=$1
    COMP_LINE=$2 COMP_POINT=${#2} COMPREPLY=()
    _weft
    [[ ${COMPREPLY[*]} == "$want" ]] || fail "bash: '$2': '${COMPREPLY[*]}', not '$want'"
}
in_bash "resnet18 resnet34 resnet50" "weft train --model=res"
in_bash "2,schedule=" "weft train --plan dp=2,sch"
in_bash "gpipe" "weft train --plan dp=2,schedule=gp"
in_bash "$folder/some/runs-of-mine" "weft train --out $folder/some/ru"
in_bash "$folder/some/runs-of-mine" "weft train --out=$folder/some/ru"
in_bash "simulate" "weft si"

# ---- zsh, with its own functions in place of what needs a terminal ----
if command -v zsh >/dev/null; then
    in_zsh() {
        local want=$1 got
        shift
        got=$(zsh -fc 'compadd() { print -r -- "$@" } ; compset() { print -r -- compset "$@" } ; _files() { print -r -- files }
            words=("$@"); CURRENT=$#; . cli/completion/weft.zsh' zsh "$@" | tr '\n' ' ')
        [[ ${got% } == "$want" ]] || fail "zsh: $*: '${got% }', not '$want'"
    }
    in_zsh "-- --model=resnet18 --model=resnet34 --model=resnet50" weft train --model=res
    in_zsh "-S  -- dp=2,schedule=" weft train --plan dp=2,sch
    in_zsh "compset -p 6 files" weft train --out=ru
fi

# ---- fish ----
cp cli/completion/weft.fish "$folder"
if command -v fish >/dev/null; then
    in_fish() {
        local got
        got=$(cd "$folder" && HOME=$folder fish -c "source weft.fish; complete -C '$2'" | cut -f1 | tr '\n' ' ')
        [[ ${got% } == "$1" ]] || fail "fish: '$2': '${got% }', not '$1'"
    }
    in_fish "resnet18 resnet34 resnet50" "weft train --model res"
    in_fish "--model=resnet18 --model=resnet34 --model=resnet50" "weft train --model=res"
    in_fish "some/runs-of-mine/" "weft train --out some/ru"
fi
finish
