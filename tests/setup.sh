#!/usr/bin/env bash
# scripts/setup with a pretended package manager: silent when all is there, else it says
# what is missing and why, asks for it once, through sudo when not root.
# label: once
set -uo pipefail
fake=$(mktemp -d)
trap 'rm -rf "$fake"' EXIT
cat >"$fake/dpkg-query" <<'SH'
#!/bin/sh
for name; do :; done
case " $MISSING " in *" $name "*) exit 1 ;; esac
echo installed
SH
cat >"$fake/apt-get" <<'SH'
#!/bin/sh
echo "$VIA apt-get $*" >>"$FAKE/calls"
[ -z "$BROKEN" ]
SH
cat >"$fake/sudo" <<'SH'
#!/bin/sh
VIA=sudo exec "$@"
SH
echo 'echo ${USER_ID:-0}' >"$fake/id"
chmod +x "$fake"/*
export FAKE=$fake MISSING= BROKEN= VIA= PATH=$fake:$PATH

failed=0
expect() { # STATUS NAME, wanted text in $said or $calls as further patterns
    [[ $status == "$1" ]] || { echo "$2: exit status $status, should be $1"; failed=1; }
    for pattern in "${@:3}"; do
        [[ "$said$calls" == *"$pattern"* ]] || { echo "$2: no '$pattern' in: $said$calls"; failed=1; }
    done
}
setup() {
    : >"$fake/calls"
    said=$(scripts/setup "$@" 2>&1)
    status=$?
    calls=$(<"$fake/calls")
}
setup
expect 0 "all there"
[[ -z $said$calls ]] || { echo "all there, yet: $said$calls"; failed=1; }

MISSING="gnuplot-nox zlib1g-dev" setup
expect 0 "two missing" "gnuplot: pictures" "zlib: compressed" " apt-get -q update" "recommends zlib1g-dev gnuplot-nox"
[[ $calls != *sudo* ]] || { echo "sudo although root"; failed=1; }

MISSING=cmake USER_ID=1000 setup
expect 0 "not root" "sudo apt-get -q update" "sudo apt-get -q install"
# Who may not is told what would have been done, to the letter: images of Debian come without lists.
mkdir "$fake/no_sudo"
for tool in bash env mktemp rm; do ln -s "$(command -v "$tool")" "$fake/no_sudo"; done
ln -s "$fake"/{id,dpkg-query,apt-get} "$fake/no_sudo"
PATH=$fake/no_sudo MISSING="cmake zlib1g-dev" USER_ID=1000 setup
expect 1 "no sudo" "as root: apt-get update && apt-get install --no-install-recommends cmake zlib1g-dev"
[[ -z $calls ]] || { echo "no sudo, yet: $calls"; failed=1; }

MISSING="mpich clang-format-14" setup --tests
expect 0 "tests" "MPICH: " "recommends mpich clang-format-14"
MISSING=mpich setup
expect 0 "no tests"
[[ -z $calls ]] || { echo "MPICH without --tests"; failed=1; }
MISSING=gnuplot-nox BROKEN=1 setup --tests
expect 0 "tests without pictures" "Tests that need these are skipped: gnuplot-nox"
MISSING=file setup --deb
expect 0 "a package" "file: what" "recommends file"
MISSING=mpich BROKEN=1 setup --tests
expect 0 "tests without a package" "could not install: mpich" "Tests that need these are skipped: mpich"
MISSING="cmake mpich" BROKEN=1 setup --tests
expect 1 "tests, apt-get fails" "could not install: cmake"

MISSING=clang setup --fuzz
expect 0 "fuzz" "libFuzzer" "recommends clang"
MISSING=clang setup
expect 0 "no fuzz"
[[ -z $calls ]] || { echo "clang without --fuzz"; failed=1; }

MISSING=cmake BROKEN=1 setup
expect 1 "apt-get fails" "could not install: cmake"
setup --nonsense
expect 2 "unknown option" "usage"
# What scripts/build says where a tool is missing does not lead in a circle.
mkdir "$fake/bare"
for tool in bash env dirname; do ln -s "$(command -v "$tool")" "$fake/bare"; done
calls=
said=$(PATH=$fake/bare scripts/build "$fake/none" all 2>&1)
status=$?
expect 1 "build, no apt-get" "cmake is missing: install it by this system's own means"
ln -s "$fake/apt-get" "$fake/bare"
said=$(PATH=$fake/bare scripts/build "$fake/none" all 2>&1)
status=$?
expect 1 "build, apt-get" "cmake is missing: scripts/setup installs what weft needs"

exit $failed
