#!/usr/bin/env bash
# What is installed is small and complete: the program runs from there, and programs of others
# build with pkg-config and with CMake, also after the folder was moved.
# label: once
set -euo pipefail
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cmake --install "$WEFT_BUILD" --prefix "$root/first" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
mv "$root/first" "$root/moved"
prefix=$root/moved

bytes=$(du -sb "$prefix" | cut -f1)
((bytes < 10000000)) || { echo "$bytes bytes are installed, 10 MB or more"; exit 1; }
for file in bin/weft share/man/man1/weft.1 share/bash-completion/completions/weft share/weft/peers/mpi_allreduce.c; do
    [[ -s $prefix/$file ]] || { echo "$file is not installed"; exit 1; }
done
"$prefix/bin/weft" --version >/dev/null
bash -n "$prefix/share/bash-completion/completions/weft"
ldd "$prefix/bin/weft" | grep -c "=> $prefix/.*/libweft\.so\.0 " >/dev/null ||
    { echo "the program does not use the library beside it:"; ldd "$prefix/bin/weft"; exit 1; }

mkdir "$root/user"
cat >"$root/user/user.c" <<'C'
#include <stdio.h>
#include <weft/weft.h>
int main(void) {
    return puts(wf_status_meaning(WF_OK)) < 0;
}
C
library=$(dirname "$(find "$prefix" -name libweft.so)")
PKG_CONFIG_PATH=$library/pkgconfig
export PKG_CONFIG_PATH
[[ $(pkg-config --modversion weft) == "$(sed -n 's/#define WEFT_VERSION "\(.*\)"/\1/p' include/weft/weft.h)" ]] ||
    { echo "weft.pc and weft.h disagree on the version"; exit 1; }
read -ra flags <<<"$(pkg-config --cflags --libs weft)"
"${CC:-cc}" "$root/user/user.c" "${flags[@]}" -o "$root/user/by_hand"
[[ $("$root/user/by_hand") == done ]]

# In the system's own prefix the loader's cache is renewed, and no path goes into programs. Nothing of
# it is seen outside this command.
if [[ $(command -v cmake) != /usr/local/* ]] && unshare --map-root-user --mount true 2>/dev/null; then
    ROOT=$root unshare --map-root-user --mount bash -euc '
        unset PKG_CONFIG_PATH LD_LIBRARY_PATH
        mount -t tmpfs none /usr/local
        mkdir "$ROOT/etc"
        cp -a /etc/. "$ROOT/etc" 2>/dev/null || true
        mount --bind "$ROOT/etc" /etc
        cmake --install "$WEFT_BUILD" --prefix /usr/local
        flags=$(pkg-config --cflags --libs weft)
        [[ $flags != *rpath* ]]
        "${CC:-cc}" "$ROOT/user/user.c" $flags -o "$ROOT/user/by_system"
        [[ $("$ROOT/user/by_system") == done ]]' >"$root/log" 2>&1 ||
        { cat "$root/log"; echo "a program does not find the library in /usr/local"; exit 1; }
fi

cat >"$root/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.21)
project(user C)
find_package(weft 0.1 REQUIRED)
add_executable(user user.c)
target_link_libraries(user PRIVATE weft::weft)
CMAKE
{
    cmake -S "$root/user" -B "$root/user/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$root/user/build"
} >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
[[ $("$root/user/build/user") == done ]]
