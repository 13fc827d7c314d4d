# own_installer FOLDER: from there `cmake --install FOLDER` installs what was built, and keeps the list of the
# files there too. The build folder's own list is that of the last `make install`: `make uninstall` needs it.
own_installer() {
    local script
    script=$(<"$WEFT_BUILD/cmake_install.cmake")
    [[ $script == *"\"$WEFT_BUILD/\${CMAKE_INSTALL_MANIFEST}\""* ]] || { echo "CMake keeps its list elsewhere"; return 1; }
    mkdir "$1"
    echo "${script//"\"$WEFT_BUILD/\${CMAKE_INSTALL_MANIFEST}\""/"\"$1/\${CMAKE_INSTALL_MANIFEST}\""}" >"$1/cmake_install.cmake"
}
# installed_list: what `make uninstall` would remove.
installed_list() { cat "$WEFT_BUILD/install_manifest.txt" 2>/dev/null || true; }
