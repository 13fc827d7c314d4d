"""Rows, tables, reports and pictures of weft bench. weft starts this script:

    python3 bench/cases FOLDER KEY=VALUE... --OPTION=VALUE...

KEY=VALUE is an option of the bench or a property of the machine. --OPTION=VALUE is an option that
the user gave and that the runs take as well. Some benches measure their rows in weft, which are then
in FOLDER/rows.json. The script prints the table, and writes the report and the pictures to
FOLDER/report.json. Without arguments it only checks that Python can run it. A status of 64 and more
is 64 and weft's own: a sentence says why.
"""
import _signal
import sys

_signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # weft reports it; no traceback while modules load
if sys.version_info < (3, 9):
    sys.stderr.write("weft: bench: python3 is version %d.%d; 3.9 or newer is needed\n"
                     % sys.version_info[:2])
    sys.exit(64 + 1)

from allreduce import Allreduce
from asynchronous import Async
from ddp import Ddp
from memory import Memory
from parallel import Parallel
from predict import Predict
from price import Price
from published import Published

CASES = {"allreduce": Allreduce, "async": Async, "ddp": Ddp, "memory": Memory,
         "model-parallel": Parallel, "predict": Predict, "price": Price, "published": Published}


def main(folder, words):
    name = next(word for word in words if word.startswith("bench=")).removeprefix("bench=")
    CASES[name](folder, words).main()


if len(sys.argv) > 1:
    main(sys.argv[1], sys.argv[2:])
