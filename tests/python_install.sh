#!/usr/bin/env bash
# label: once
# pip install . without a network: a wheel with the library that was built, which runs from anywhere, and one without.
source tests/python_helpers.bash
unset PYTHONPATH WEFT_LIBRARY

# install FROM TO: by pip; where there is none, by the build hook that pip calls.
install() {
    if python3 -m pip --version >/dev/null 2>&1; then
        python3 -m pip install -q --no-index --no-cache-dir --no-deps --target "$2" "$1"
    else
        echo "python3 has no pip: the wheel is built without"
        mkdir "$2" && (cd "$1/python" && python3 -c "import weft_wheel; print(weft_wheel.build_wheel('$2'))") &&
            python3 -m zipfile -e "$2"/*.whl "$2"
    fi >"$folder/said" 2>&1 || fail "installing $1: $(tail -5 "$folder/said")"
}

mkdir -p "$folder/tree/include"
cp -r LICENSE pyproject.toml python "$folder/tree"
ln -s "$PWD/include/weft" "$folder/tree/include/weft"
install "$folder/tree" "$folder/pure"
grep -qx "Tag: py3-none-any" "$folder"/pure/weft-*.dist-info/WHEEL || fail "a wheel without the library is for one platform"
[[ -e $folder/pure/weft/py.typed && ! -e $folder/pure/weft/libweft.so ]] || fail "the wheel has $(ls "$folder/pure/weft")"

mkdir "$folder/tree/build"
ln -s "$WEFT_BUILD/libweft.so" "$folder/tree/build"
install "$folder/tree" "$folder/site"
grep -qx "Tag: py3-none-linux_.*" "$folder"/site/weft-*.dist-info/WHEEL || fail "a wheel with the library is for all platforms"
rm -rf "$folder/tree"
said=$(cd / && PYTHONPATH=$folder/site python3 -c "
import importlib.metadata, weft
assert weft.__version__ == importlib.metadata.version('weft'), importlib.metadata.version('weft')
print(weft._lib._name, 'mlp' in weft.models())" 2>&1)
[[ $said == "$folder/site/weft/libweft.so True" ]] || fail "the installed package: $said"
finish
