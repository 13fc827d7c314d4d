#!/usr/bin/env bash
# The core, libweft, is built and used without the libraries of data sets and tokenizers.
# label: once
set -euo pipefail
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
fail() { echo "$1"; exit 1; }

readelf -d "$WEFT_BUILD/libweft.so" | grep -E 'NEEDED.*lib(weft|z|pcre2|jpeg|png)' && fail "libweft.so needs these"

# It configures on a machine that has none of them, with WEFT_DATA=OFF only.
cat >"$root/pkg-config" <<'END'
#!/bin/sh
case $* in *libpcre2*|*libjpeg*|*libpng*) exit 1 ;; esac
exec pkg-config "$@"
END
chmod +x "$root/pkg-config"
configure() { # WEFT_DATA
    cmake -S . -B "$root/$1" -G Ninja -DWEFT_DATA="$1" -DPKG_CONFIG_EXECUTABLE="$root/pkg-config" \
        -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB="$2" >"$root/log" 2>&1
}
configure ON OFF && fail "weft configures without PCRE2"
grep -q libpcre2 "$root/log" || fail "configuring without PCRE2 reports: $(tail -5 "$root/log")"
configure OFF ON || fail "the core does not configure: $(tail -5 "$root/log")"
ninja -C "$root/OFF" -t commands all >"$root/commands"
grep -q 'libweft\.so' "$root/commands" && grep -q 'libweft\.a' "$root/commands" || fail "the core is not built"
grep -E 'src/data/|cli/|-l(z|pcre2-8|jpeg|png)\b' "$root/commands" && fail "more than the core is built"

# A program trains with the core alone, shared or static.
"$CC" -std=c11 -D_GNU_SOURCE -Iinclude examples/toy.c -L"$WEFT_BUILD" -lweft -lm -Wl,-rpath,"$WEFT_BUILD" -o "$root/shared"
"$CC" -std=c11 -D_GNU_SOURCE -Iinclude examples/toy.c "$WEFT_BUILD/libweft.a" -ldnnl -lhwloc -ljansson -lsodium -lpthread -ldl -lm -o "$root/static"
for kind in shared static; do
    "$root/$kind" >"$root/said" || fail "$kind: $(tail -1 "$root/said")"
    grep -q '^step 1: loss' "$root/said" || fail "$kind does not train: $(<"$root/said")"
done
