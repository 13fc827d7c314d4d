"""Shared by the comparisons with PyTorch: their options, its ways to run, and the reports of runs."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parent
# An exception removes temporary folders and kills the run that is under way.
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: sys.exit(128 + number))

PYTHON = pathlib.Path(tempfile.gettempdir()) / "weft-peers/bin/python"

# PyTorch computes the batch at once. weft's default lanes and slices, which let more ranks compute
# the same bits, would divide it: weft bench price measures them.
UNDIVIDED = ["--lanes", "1", "--slices", "1"]

# glibc gives freed memory back to the system and takes a page fault for each page when it
# allocates again (200,000 in a step of ResNet-50); these settings keep it.
TUNED_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000",
                "MALLOC_TOP_PAD_": "268435456"}

# Of PyTorch: options and environment.
WAYS = {"eager": ([], {}), "eager-tuned": ([], TUNED_MALLOC),
        "compiled": (["--compile"], {}), "compiled-tuned": (["--compile"], TUNED_MALLOC)}


def parser(doc, name=None):
    """The options of all; `name`: of the report in bench/out, if the comparison has one."""
    options = argparse.ArgumentParser(description=doc,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--weft", default=str(BENCH.parent / "build/weft"), metavar="PATH")
    options.add_argument("--python", default=str(PYTHON) if PYTHON.exists() else "python3",
                         metavar="PATH", help="one that has PyTorch (default: %(default)s)")
    if name:
        options.add_argument("--rounds", type=int, default=3)
        options.add_argument("--out", default=str(BENCH / f"out/{name}.json"), metavar="FILE")
    return options


def report_of(what, command, environment, path=None):
    """The JSON report of a run, printed or in `path`; None (and a line that says why) without one."""
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    try:
        return json.loads(path.read_text() if path else done.stdout)
    except (OSError, ValueError):
        lines = (done.stderr or done.stdout).strip().splitlines()
        print(f"  {what}: no figure, status {done.returncode}: {lines[-1] if lines else ''}")
        return None


def write(path, report):
    out = pathlib.Path(path)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
