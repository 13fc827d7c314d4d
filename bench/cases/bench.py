"""A bench: rows that take turns in rounds. A row is a dictionary with the fields of the report;
those that begin with a dot do not appear there."""
import json
import os
import signal
import subprocess
import sys
import time

import table

LOG_BYTES = 8192
SAID = 64  # plus a status of weft: a sentence says why
# Options that the rows set themselves.
OWN = {"plan", "plans", "ranks", "threads", "repeat", "steps", "out", "json", "quiet", "peers",
       "python", "workers", "staleness", "servers", "local_steps", "outer_lr", "outer_momentum"}
# Variables that weft sets for this script, which is one rank; the runs have their own ranks.
PLACE = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WEFT_CONTROL_FD", "WEFT_TERMINAL",
         "MASTER_ADDR", "MASTER_PORT"}


def shown(text):
    """The text without characters that control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def fail(text, status=1):
    print(f"weft: {shown(text)}", file=sys.stderr)
    sys.exit(SAID + status)


class Bench:
    """Subclasses have add_rows(), run(row), finish(), say_rows(), and perhaps after_first() (of the
    rounds), extra_fields() (of the report) and charts()."""

    def __init__(self, folder, words):
        self.folder = folder
        self.value = dict(word.split("=", 1) for word in words if not word.startswith("-"))
        self.given = {word[2:].split("=", 1)[0].replace("-", "_"): word
                      for word in words if word.startswith("-")}
        self.plans = [word[4:] for word in words if word.startswith("row=")]
        for name in ("batch", "ranks", "steps", "repeat", "threads", "cores"):
            setattr(self, name, int(self.value.get(name, 0)))
        self.has_peers = self.value.get("peers") == "true"
        self.model = self.value.get("model", "")
        self.rows, self.recipe, self.peer_version = [], None, ""
        self.n_done = self.n_runs = 0
        self.begun_s = self.drawn_s = time.monotonic()

    def path(self, name):
        return os.path.join(self.folder, name)

    def say(self, text=""):
        if self.value.get("quiet") != "true":
            print(shown(text))

    def note(self, text):
        self.clear()
        print(shown(text), file=sys.stderr)

    def say_table(self, columns, rows=None):
        for line in table.lines(self.rows if rows is None else rows, columns):
            self.say(line)

    # ---- rounds ----

    def main(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        try:
            self.add_rows()
            for number in range(self.repeat):
                turns = self.turns(number)
                active = sum(".left_out" not in row for row in turns)
                self.n_runs = self.n_done + active * (self.repeat - number)
                self.once("run", turns, self.run, number % 2)
                if number == 0:
                    self.after_first()
            self.finish()
        except KeyboardInterrupt:
            sys.exit(1)  # weft has the signal, too, and reports it
        self.clear()
        self.say_rows()
        self.write()

    def once(self, verb, rows, run, is_backward=False):
        """Backwards in odd rounds, so that no row always follows the same one."""
        for row in list(reversed(rows) if is_backward else rows):
            if ".left_out" not in row:
                self.progress(f"{verb} {self.n_done + 1}/{self.n_runs}  {row['.name']}")
                self.n_done += 1
                run(row)

    def turns(self, number):
        """What takes turns in that round."""
        return self.rows

    def after_first(self):
        pass

    def progress(self, text):
        now, part = time.monotonic(), self.n_done / self.n_runs
        columns = int(os.environ.get("WEFT_TERMINAL", 0))
        if self.value.get("quiet") == "true" or now - self.drawn_s < (0.1 if columns else 5):
            return
        left = (now - self.begun_s) / part * (1 - part) if part else None
        text += f"  {'-' if left is None else f'{left // 60:.0f}:{left % 60:02.0f}'} left"
        self.drawn_s = now
        if columns:
            n = min(24, columns - len(text) - 4)
            bar = "#" * int(n * part)
            line = (f"{bar:.<{n}}  {text}" if n >= 6 else text)[:columns - 1]
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr)

    def clear(self):
        if "WEFT_TERMINAL" in os.environ:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    # ---- runs ----

    def execute(self, command, n_cores, more=None):
        """Runs the command on the last cores: the first often has the system's own work. Returns the
        exit status, the end of the output, and the report or None."""
        report, cores = self.path("report.json"), os.sched_getaffinity(0)
        environment = {k: v for k, v in os.environ.items() if k not in PLACE} | (more or {})
        if os.path.exists(report):
            os.remove(report)
        if len(cores) > n_cores:
            os.sched_setaffinity(0, sorted(cores)[-n_cores:])
        with open(self.path("log"), "w+b") as log:
            try:
                status = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         env=environment)
            except OSError as error:
                return 127, f"{command[0]} cannot be started: {error.strerror}", None
            finally:
                os.sched_setaffinity(0, cores)
            log.seek(max(0, log.tell() - LOG_BYTES))
            said = log.read().decode(errors="replace").rstrip("\n")
        try:
            with open(report, encoding="utf-8") as file:
                return status, said, json.load(file)
        except (OSError, ValueError) as error:
            return status, said or f"the run has no report: {error}", None

    def weft(self, words, n_cores, more=None):
        """The report of a run of weft."""
        return self.must([self.value["weft"], *words], n_cores, more)

    def must(self, command, n_cores, more=None):
        """The report of a run, without which the bench fails."""
        status, said, report = self.execute(command, n_cores, more)
        if status == 0 and report is not None:
            return report
        if status < 0:
            fail(f"a run of weft was ended by signal {-status}", 4)
        self.clear()
        print(said, file=sys.stderr)
        sys.exit(SAID + (status if 0 < status <= 4 else 1))

    def words(self, name):
        """A command of weft with the options that were given, its threads and its report."""
        return [*name.split(), *(word for key, word in self.given.items() if key not in OWN),
                f"--threads={self.threads}", f"--json={self.path('report.json')}", "--quiet"]

    def train(self, row, words):
        """The report of a run of the row, which has the same weights in all rounds."""
        report = self.weft(words, row["ranks"] * self.threads)
        sha, before = report.get("weights_sha256"), row.get("weights_sha256")
        if not sha:
            fail(f"a run of plan {report.get('plan')} reports no weights")
        if before and before != sha:
            fail(f"plan {report['plan']}: two runs have different weights, {before[:12]}... and "
                 f"{sha[:12]}...; this is a bug of weft")
        row.update(plan=report["plan"], weights_sha256=sha)
        self.recipe = self.recipe or report["recipe"]
        return report

    def peer(self, n_ranks, batch, words, more=None):
        """The report of PyTorch with so many samples a rank; or None, and why."""
        value, store = self.value, self.path("store")
        if not value["script"]:
            return None, f"{value['script_name']} is not installed with weft"
        if os.path.exists(store):
            os.remove(store)
        optimizer = "sgd" if value["optimizer"] == "sgd" else "adamw"
        sizes = [f"--{name}={value[name]}" for name in ("image", "tokens")
                 if int(value.get(name, 0))]
        command = [value["weft"], "run", "-n", str(n_ranks), "--", value["peer_python"],
                   value["script"], f"--model={self.model}", *sizes, f"--batch={batch}",
                   f"--threads={self.threads}", f"--repeat={self.steps}",
                   f"--optimizer={optimizer}", f"--store={store}",
                   f"--json={self.path('report.json')}", *words]
        own = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(self.threads)}
        status, said, report = self.execute(command, n_ranks * self.threads, own | (more or {}))
        if status == 0 and report is not None:
            self.peer_version = str(report.get("version", ""))[:99]
            return report, ""
        return None, self.last_line(said)

    def last_line(self, said):
        """Of the program, if weft run has not said all."""
        last = said.split("\n")
        own = [line for line in last if not line.startswith("weft: ")]
        return shown((own or last)[-1])[:299]

    # ---- the report ----

    def extra_fields(self):
        return {}

    def charts(self):
        return []

    def chart_title(self):
        return f"{self.model[:40]}, batch {self.batch}"

    def public_rows(self, are_peers=False):
        return [{key: value for key, value in row.items() if not key.startswith(".")}
                for row in self.rows if (".peer" in row) == are_peers]

    def report(self):
        report = {"weft": self.value["version"], "recipe": self.recipe, "steps": self.steps,
                  "repeat": self.repeat, "cores": self.cores, "rows": self.public_rows()}
        if "steps" not in self.value:
            del report["steps"]
        if self.has_peers:
            report |= {"peers": self.public_rows(True), "peer_version": self.peer_version}
        return report | self.extra_fields()

    def write(self):
        charts = [{"name": name, "csv": lines.rstrip("\n"), "title": title, "script": script}
                  for name, lines, title, script in (self.charts() if self.value.get("out") else [])]
        with open(self.path("report.json"), "w", encoding="utf-8") as file:
            json.dump({"report": self.report(), "charts": charts}, file)


class Measured(Bench):
    """A bench with rows that weft has measured itself, which are in FOLDER/rows.json."""

    def main(self):
        self.is_measured = os.path.exists(self.path("rows.json"))
        if not self.is_measured:
            super().main()
            return
        with open(self.path("rows.json"), encoding="utf-8") as file:
            self.state = json.load(file)
        self.rows, self.recipe = self.state["rows"], self.state.get("recipe")
        self.finish()
        self.say_rows()
        self.write()
