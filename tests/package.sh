#!/usr/bin/env bash
# weft as a part of another project is a library and no more, compiled as for use, and the Debian package is
# complete.
# label: once
set -euo pipefail
# shellcheck source=tests/install_helpers.bash
. tests/install_helpers.bash
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
version=$("$WEFT" --version)
[[ $version == "weft "* ]] || { echo "weft --version says '$version'"; exit 1; }

# A project that says nothing of how to build, and has targets of common names itself.
cat >"$root/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.21)
project(user C)
add_subdirectory("$WEFT_SOURCE" weft)
add_custom_target(tests)
add_custom_target(fuzzers)
add_executable(user user.c)
target_link_libraries(user PRIVATE weft::weft)
file(GENERATE OUTPUT library CONTENT "$<TARGET_FILE_NAME:weft::weft> $<TARGET_FILE_NAME:weft::static>")
CMAKE
echo 'int main(void) { return 0; }' >"$root/user.c"
for shared in ON OFF; do
    cmake -S "$root" -B "$root/$shared" -G Ninja -DBUILD_SHARED_LIBS=$shared >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
done
[[ $(<"$root/ON/library") == "libweft.so"*" libweft.a" ]] || { echo "weft::weft is no shared library: $(<"$root/ON/library")"; exit 1; }
[[ $(<"$root/OFF/library") == "libweft.a libweft.a" ]] || { echo "BUILD_SHARED_LIBS=OFF: $(<"$root/OFF/library")"; exit 1; }
flags=$(grep "FLAGS = .*-fvisibility=hidden" "$root/ON/build.ninja")
[[ $(grep -cv -- "-O2" <<<"$flags") == 0 ]] || { echo "not all of weft is optimized"; exit 1; }
[[ $flags != *-Werror* ]] || { echo "warnings of weft stop the build of another project"; exit 1; }
ninja -C "$root/ON" -t commands all >"$root/commands"
grep -q "libweft\.so" "$root/commands"
grep -E "cli/|examples/|tests/|fuzz/" "$root/commands" && { echo "more is built than the library"; exit 1; }

for tool in dpkg-shlibdeps:dpkg-dev file:file; do
    command -v "${tool%:*}" >/dev/null || { echo "skipped: ${tool#*:} is not installed, so the Debian package is not made"; exit 77; }
done
installed=$(installed_list)
cpack -G DEB --config "$WEFT_BUILD/CPackConfig.cmake" -B "$root/deb" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
[[ $(installed_list) == "$installed" ]] || { echo "a package that is made changes what 'make uninstall' removes"; exit 1; }
package=$root/deb/weft_${version#weft }_$(dpkg --print-architecture).deb
dpkg-deb -f "$package" Depends | grep "libdnnl.*libhwloc" >/dev/null || { echo "Depends: $(dpkg-deb -f "$package" Depends)"; exit 1; }
dpkg-deb -x "$package" "$root/own"
"$root/own/usr/bin/weft" --version >/dev/null
for file in include/weft/weft.h lib/weft/libweft{,-data}.a lib/pkgconfig/weft{,-data}.pc lib/cmake/weft/weftConfig.cmake share/man/man1/weft.1.gz; do
    [[ -s $root/own/usr/$file ]] || { echo "the package has no $file"; exit 1; }
done
grep rpath "$root/own/usr/lib/pkgconfig/weft-path.pc" && { echo "the package's flags name a path of the loader's"; exit 1; }
dpkg-deb --ctrl-tarfile "$package" | tar -xO ./postinst | grep ldconfig >/dev/null || { echo "the loader's cache is not renewed"; exit 1; }
