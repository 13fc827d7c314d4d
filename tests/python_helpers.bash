# Sourced by the tests of the Python package, whose programs may `import helpers`.
# shellcheck source=tests/cli_helpers.bash
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
export PYTHONPATH=$WEFT_SOURCE/python:$folder WEFT_LIBRARY=$WEFT_BUILD/libweft.so PYTHONDONTWRITEBYTECODE=1 D=$folder

cat >"$folder/helpers.py" <<'PY'
import array, weft

def batch(n, first=0):
    x = memoryview(array.array("f", [((first + i) * 37 % 101) / 50 - 1 for i in range(n * 16)])).cast("B").cast("f", (n, 1, 4, 4))
    return dict(x=x, y=array.array("i", [(first + 3 * i) % 10 for i in range(n)]))

def same(got, want, what):
    assert got == want, f"{what}: {got}, not {want}"

def refused(name, words, call):
    try:
        call()
    except Exception as error:
        kind = error.name if isinstance(error, weft.Error) else type(error).__name__
        assert (kind, words in str(error)) == (name, True), f"{kind}: {error}"
    else:
        raise AssertionError(f"not refused: {words}")
PY
