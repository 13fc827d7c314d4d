"""The rows of weft bench ddp, memory, price and async. weft starts this script:

    python3 bench/cases FOLDER KEY=VALUE... --OPTION=VALUE...

KEY=VALUE is an option of the bench or a property of the machine. --OPTION=VALUE is an option that
the user gave and that the runs take as well. The script prints the table, and writes the report and
the pictures to FOLDER/report.json.
"""
import sys

from asynchronous import Async
from ddp import Ddp
from memory import Memory
from price import Price

CASES = {"ddp": Ddp, "memory": Memory, "price": Price, "async": Async}


def main(folder, words):
    name = next(word for word in words if word.startswith("bench=")).removeprefix("bench=")
    CASES[name](folder, words).main()


main(sys.argv[1], sys.argv[2:])
