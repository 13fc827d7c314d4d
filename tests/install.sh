#!/usr/bin/env bash
# An installation is small and complete: the program runs from there, and programs of others
# build with pkg-config and with CMake, also after the folder was moved; the static library is a part of its own.
# label: once
set -euo pipefail
# shellcheck source=tests/install_helpers.bash
. tests/install_helpers.bash
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
installed=$(installed_list)
own_installer "$root/installer"
cmake --install "$root/installer" --prefix "$root/first" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
mv "$root/first" "$root/moved"
prefix=$root/moved

bytes_of_files() { find "$@" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }'; }
bytes=$(bytes_of_files "$prefix")
((bytes < 2800000)) || { echo "$bytes bytes are installed, 2.8 MB or more:"; find "$prefix" -size +64k -ls; exit 1; }
for file in bin/weft share/man/man1/weft.1.gz share/bash-completion/completions/weft share/zsh/site-functions/_weft \
    share/fish/vendor_completions.d/weft.fish share/weft/cases/__main__.py share/weft/peers/mpi_allreduce.c; do
    [[ -s $prefix/$file ]] || { echo "$file is not installed"; exit 1; }
done
"$prefix/bin/weft" --version >/dev/null
! command -v python3 >/dev/null || "$prefix/bin/weft" bench price --model mlp --image 6 --batch 1 --steps 1 --repeat 1 --quiet
bash -n "$prefix/share/bash-completion/completions/weft"
ldd "$prefix/bin/weft" | grep -c "=> $prefix/.*/libweft\.so\.0\.1 " >/dev/null ||
    { echo "the program does not use the library beside it:"; ldd "$prefix/bin/weft"; exit 1; }

mkdir "$root/user"
cat >"$root/user/user.c" <<'C'
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>
int main(void) {
    char numbers[40];
    snprintf(numbers, sizeof numbers, "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
    if (strcmp(numbers, WEFT_VERSION) || strcmp(wf_version(), WEFT_VERSION)) return puts(numbers), 1;
#ifdef DATA
    if (!wf_data_library(0)) return 1;
#endif
    return puts(wf_status_meaning(WF_OK)) < 0;
}
C
library=$(dirname "$(find "$prefix" -name libweft.so)")
PKG_CONFIG_PATH=$library/pkgconfig
export PKG_CONFIG_PATH
[[ $(pkg-config --modversion weft) == "$(sed -n 's/#define WEFT_VERSION  *"\(.*\)"/\1/p' include/weft/weft.h)" ]] ||
    { echo "weft.pc and weft.h disagree on the version"; exit 1; }
read -ra flags <<<"$(pkg-config --cflags --libs weft)"
"${CC:-cc}" "$root/user/user.c" "${flags[@]}" -o "$root/user/by_hand"
[[ $("$root/user/by_hand") == done ]]
nm -D "$library/libweft.so" "$library/libweft-data.so" |
    awk '$2 ~ /^[A-Z]$/ && $3 !~ /^((wf_.*@@)?WEFT|(wfi_.*@@)?WEFT_PRIVATE)_0\.1$/ { print; bad = 1 } END { exit bad }' ||
    { echo "these symbols are exported without the version, or are not ours"; exit 1; }

# Each function has a manual page, which leads to that of its header.
for function in $(nm -D --defined-only "$library/libweft.so" "$library/libweft-data.so" | sed -n 's/.* \(wf_[a-z0-9_]*\)@.*/\1/p'); do
    gzip -dc "$prefix/share/man/man3/$function.3.gz" | grep "^$function\|[ *]$function(" >/dev/null || { echo "$function has no manual page"; exit 1; }
done
if command -v man >/dev/null; then
    for page in "$prefix"/share/man/man3/weft_{group,trainer,recipe,types}.3.gz; do
        said=$(LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l "$page" 2>&1 >/dev/null)
        [[ ! $said ]] || { echo "${page##*/} has warnings: $said"; exit 1; }
    done
fi

# Where the static libraries are not installed, --static links the shared ones.
links() { # NAME PACKAGE [OPTION...]: builds user/NAME, which runs
    read -ra flags <<<"$(pkg-config "${@:3}" --cflags --libs "$2")"
    [[ $2 == weft ]] || flags+=(-DDATA)
    "${CC:-cc}" "$root/user/user.c" "${flags[@]}" -o "$root/user/$1" && [[ $("$root/user/$1") == done ]]
}
links by_either weft --static
links data_by_either weft-data --static

# With them, the program needs no other libweft, even without the shared ones.
cmake --install "$root/installer" --prefix "$prefix" --component static >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
archive=$(find "$prefix" -name libweft.a)
((2 * $(bytes_of_files "$archive") < $(bytes_of_files "$WEFT_BUILD/libweft.a"))) || { echo "$archive is not stripped"; exit 1; }
for package in weft weft-data; do
    links by_static $package --static || { echo "pkg-config --static does not link: ${flags[*]}"; exit 1; }
    [[ $(ldd "$root/user/by_static") != *libweft* ]] || { echo "pkg-config --static links the shared library: ${flags[*]}"; exit 1; }
    links by_shared $package
    [[ $(ldd "$root/user/by_shared") == *"lib$package.so"* ]] || { echo "pkg-config without --static links the static library"; exit 1; }
done

# Nothing that is built or installed names the folders it was made in: it is the same from any other, down to
# the build-id, which comes from the debug information.
if grep -rlF -e "$WEFT_SOURCE" -e "$(realpath "$WEFT_BUILD")" "$prefix" "$WEFT_BUILD/weft" "$WEFT_BUILD/libweft.so" "$WEFT_BUILD/libweft.a"; then
    echo "these name the folder they were built in"
    exit 1
fi

# What is removed again is all.
cmake --install "$root/installer" --prefix "$root/gone/usr" >"$root/log"
cmake --install "$root/installer" --prefix "$root/gone/usr" --component static >"$root/log"
scripts/uninstall "$root/installer"
left=$(find "$root/gone" ! -type d -o -path '*/weft*')
[[ ! $left ]] || { echo "uninstalling leaves $left"; exit 1; }
scripts/uninstall "$root/installer" 2>"$root/log" && { echo "uninstalls what is not there"; exit 1; }
grep -q "nothing has been installed from" "$root/log"

# In the system's own prefix the loader's cache is renewed, and no path goes into programs. Nothing of
# it is seen outside this command.
if [[ $(command -v cmake) != /usr/local/* ]] && unshare --map-root-user --mount true 2>/dev/null; then
    ROOT=$root unshare --map-root-user --mount bash -euc '
        unset PKG_CONFIG_PATH LD_LIBRARY_PATH
        mount -t tmpfs none /usr/local
        mkdir "$ROOT/etc"
        cp -a /etc/. "$ROOT/etc" 2>/dev/null || true
        mount --bind "$ROOT/etc" /etc
        cmake --install "$ROOT/installer" --prefix /usr/local
        flags=$(pkg-config --cflags --libs weft)
        [[ $flags != *rpath* ]]
        "${CC:-cc}" "$ROOT/user/user.c" $flags -o "$ROOT/user/by_system"
        [[ $("$ROOT/user/by_system") == done ]]' >"$root/log" 2>&1 ||
        { cat "$root/log"; echo "a program does not find the library in /usr/local"; exit 1; }
fi

cat >"$root/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.21)
project(user C)
find_package(weft 0.1 REQUIRED COMPONENTS static)
add_executable(user user.c)
target_link_libraries(user PRIVATE weft::weft)
add_executable(static user.c)
target_link_libraries(static PRIVATE weft::static)
add_executable(data user.c)
target_link_libraries(data PRIVATE weft::data)
add_executable(data_static user.c)
target_link_libraries(data_static PRIVATE weft::data_static)
foreach(target data data_static)
  target_compile_definitions(${target} PRIVATE DATA)
endforeach()
CMAKE
{
    cmake -S "$root/user" -B "$root/user/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$root/user/build"
} >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
for program in user data static data_static; do
    [[ $("$root/user/build/$program") == done ]]
    [[ $program != *static || $(ldd "$root/user/build/$program") != *libweft* ]]
done
[[ $(installed_list) == "$installed" ]] || { echo "this test changes what 'make uninstall' removes"; exit 1; }
