"""weft bench ddp: replicas of one model, more and more of them, each with a core and a batch of its
own; PyTorch's DistributedDataParallel beside them."""
import json

from bench import Bench, fail
from table import csv, median, plural, ratio

# glibc keeps freed memory, which spares PyTorch page faults.
TUNED_MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "100000000000",
                "MALLOC_TOP_PAD_": "268435456"}
WAYS = ("eager", "eager, tuned malloc", "compiled", "compiled, tuned malloc")
BACKWARD = ("backward", "weight", "backward+weight")
BAR_WIDTH = 0.27


def least(*values):
    return min((value for value in values if value is not None), default=None)


class Ddp(Bench):
    # ---- rows ----

    def add_rows(self):
        self.unit = self.value["unit"]
        self.rate = f"{self.unit}_per_second"
        self.say(f"{self.model}: {self.batch} samples a rank, whatever their number (weak "
                 f"scaling), {plural(self.threads, 'thread')} each")
        self.say(f"{self.repeat} rounds; a run is an untimed and {self.steps} timed steps, ranks as "
                 "processes")
        if self.ranks * self.threads > self.cores:
            self.say(f"there are {self.cores} cores: more ranks than that take turns and gain "
                     "nothing")
        n = 1
        while n <= self.ranks:
            for overlap in (False, True)[:n]:
                self.add(n, overlap=overlap)
            for way in WAYS if self.has_peers and self.value["script"] else ():
                self.add(n, way=way)
            n = self.ranks if n < self.ranks < 2 * n else 2 * n

    def add(self, n_ranks, overlap=False, way=None):
        name = (f"PyTorch, {way}" if way else "weft" if n_ranks == 1
                else f"weft, overlap {'on' if overlap else 'off'}")
        row = {".name": f"{name}, {plural(n_ranks, 'rank')}", ".way": name, "ranks": n_ranks,
               self.rate: None, "efficiency": None, "runs": [], "step_ms_min": None}
        if way:
            row |= {"way": way, ".peer": True}
        else:
            row |= {"overlap": overlap, "plan": None, "batch": self.batch * n_ranks, "cpu_ms": None,
                    "reduce_ms": None, "reduce_beside_backward_ms": None, "weights_sha256": None}
        self.rows.append(row)

    def own(self, n_ranks, overlap):
        """weft's row; None: there is none."""
        return next((row for row in self.rows if ".peer" not in row and row["ranks"] == n_ranks
                     and row["overlap"] == overlap), None)

    def best_peer(self, n_ranks):
        rows = [row for row in self.rows if ".peer" in row and ".left_out" not in row
                and row["ranks"] == n_ranks and row["runs"]]
        return max(rows, key=lambda row: median(row["runs"]), default=None)

    # ---- runs ----

    def run_words(self, row):
        n, keys = row["ranks"], self.value["plan"]
        # Each rank sums its own samples, as DDP does.
        return [*self.words("bench train"), f"--batch={self.batch * n}", f"--lanes={n}",
                "--slices=1", f"--repeat={self.steps}",
                f"--plan=dp={n},overlap={'on' if row['overlap'] else 'off'}{',' * bool(keys)}{keys}",
                *([f"--ranks={n}"] if n > 1 else [])]

    def run(self, row):
        if ".peer" not in row:
            return self.keep(row, self.train(row, self.run_words(row)))
        words = ["--channels-last"] + ["--compile"] * ("compiled" in row["way"])
        report, why = self.peer(row["ranks"], self.batch, words,
                                TUNED_MALLOC if "tuned" in row["way"] else None)
        if report:
            return self.keep(row, report)
        row[".left_out"] = why
        self.note(f"{row['.name']}: no figure: {why}")

    def keep(self, row, report):
        rate = report.get(self.rate)
        if not rate:
            fail(f"a run of {row['ranks']} ranks reports no {self.rate}")
        row["step_ms_min"] = least(row["step_ms_min"], report.get("step_ms", {}).get("min"))
        if ".peer" not in row:
            row["cpu_ms"] = least(row["cpu_ms"], report.get("cpu_ms"))
        row["runs"].append(float(rate))

    def after_first(self):
        """Ways of PyTorch that are far from its best need no second run."""
        for row in self.rows:
            best = self.best_peer(row["ranks"])
            if ".peer" in row and best and row is not best and not (
                    row["runs"] and 1.1 * median(row["runs"]) >= median(best["runs"])):
                row.setdefault(".left_out", "slow")

    def trace(self, row):
        """When reductions run: durations of a step, the mean of the ranks."""
        self.train(row, [*self.run_words(row), f"--trace={self.path('trace.json')}"])
        with open(self.path("trace.json"), encoding="utf-8") as file:
            spans = [event for event in json.load(file)["traceEvents"]
                     if event["ph"] == "X" and event["pid"] < row["ranks"]]
        reductions = [span for span in spans if span["args"]["kind"] == "reduce"]
        beside = sum(max(0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))
                     for a in reductions for b in spans
                     if a["pid"] == b["pid"] and b["args"]["kind"] in BACKWARD)
        row["reduce_ms"] = sum(span["dur"] for span in reductions) / 1e3 / row["ranks"]
        row["reduce_beside_backward_ms"] = beside / 1e3 / row["ranks"]

    # ---- results ----

    def finish(self):
        """The plan says when gradients are summed, and may change no bit of them."""
        traced = [row for row in self.rows if ".peer" not in row and row["ranks"] > 1]
        self.n_runs += len(traced)
        self.once("trace", traced, self.trace)
        for row in self.rows:
            one = self.best_peer(1) if ".peer" in row else self.own(1, False)
            row[self.rate] = median(row["runs"])
            row["efficiency"] = ratio(row[self.rate],
                                      one and row["ranks"] * median(one["runs"]))
            other = self.own(row["ranks"], False)
            if ".peer" not in row and row["weights_sha256"] != other["weights_sha256"]:
                fail(f"{row['ranks']} ranks: the weights are {row['weights_sha256'][:12]}... under "
                     f"the plan {row['plan']} and {other['weights_sha256'][:12]}... under "
                     f"{other['plan']}; this is a bug of weft")
        self.rows = [row for row in self.rows if row["runs"]]

    def ratios(self):
        """weft's faster way over PyTorch's fastest, by the number of ranks."""
        pairs = ((n, self.own(n, n > 1), self.best_peer(n)) for n in range(1, self.ranks + 1))
        return {n: median(own["runs"]) / median(peer["runs"]) for n, own, peer in pairs
                if own and peer}

    def say_rows(self):
        self.say()
        self.say_table([("ranks", "ranks", 5, "text"), ("", ".way", -32, "text"),
                        (f"{self.unit}/s", self.rate, 11, 2),
                        ("efficiency", "efficiency", 12, "percent"),
                        ("min ms", "step_ms_min", 11, 1), ("cpu ms", "cpu_ms", 9, 1),
                        ("reduce ms", "reduce_ms", 10, 2),
                        ("overlap ms", "reduce_beside_backward_ms", 10, 2)])
        self.say()
        self.say("efficiency is speed over ranks times the speed of one; reduce: duration of sums in "
                 "a traced")
        self.say("step, waits included; overlap: the part of it during backward")
        if self.ranks > 1:
            self.say("overlap on and off: the same weights, bit for bit")
        if self.has_peers and not self.value["script"]:
            self.say(f"no figure of PyTorch's: {self.value['script_name']} is not installed with "
                     "weft")
        for n, value in self.ratios().items():
            self.say(f"{plural(n, 'rank')}: weft / PyTorch ({self.best_peer(n)['way']}) = "
                     f"{value:.2f}")

    def extra_fields(self):
        fields = {"batch_per_rank": self.batch, "scaling": "weak", "same_weights": True}
        if self.has_peers:
            fields["weft_over_peer"] = self.ratios()
            if not self.value["script"]:
                fields["no_peer"] = f"{self.value['script_name']} is not installed with weft"
        return fields

    # ---- the picture ----

    def charts(self):
        """The bars of so many ranks, side by side, and the line that they might reach."""
        lines, tics, has_peer = csv("way", "ranks", "per_second", "x"), [], False
        for n in sorted({row["ranks"] for row in self.rows}):
            middle = len(tics)
            tics.append(f"'{plural(n, 'rank')}' {middle}")
            bars = [(way, row) for way, row in
                    (("one" if n == 1 else "off", self.own(n, False)), ("on", self.own(n, True)),
                     ("peer", self.best_peer(n))) if row]
            has_peer |= bars[-1][0] == "peer"
            for at, (way, row) in enumerate(bars):
                lines += csv(way, n, median(row["runs"]),
                             middle + BAR_WIDTH * (at - (len(bars) - 1) / 2))
            if n > 1:
                lines += csv("ideal", n, n * median(self.own(1, False)["runs"]), middle)
        peer_title = "title 'PyTorch DDP over gloo'" if has_peer else "notitle"
        yield ("ddp", lines, f"{self.model[:40]}: replicas, each with {self.batch} samples",
               f"set ylabel '{self.unit} per second'; set xtics ({','.join(tics)}) scale 0 font "
               f"',20';set boxwidth {0.94 * BAR_WIDTH:g};stats csv skip 1 using 3 nooutput name "
               "'top'; set yrange [0:top_max*1.25];"
               f"set xrange [-0.6:{len(tics) - 0.4:g}];is(way)=(strcol(1) eq way ? $4 : NaN);plot "
               "csv skip 1 using (is('one')):3 with boxes lc rgb '#999999' title 'weft, one rank',"
               "'' skip 1 using (is('off')):3 with boxes lc rgb '#56b4e9' title 'weft, sums after "
               "backward','' skip 1 using (is('on')):3 with boxes lc rgb '#0072b2' title 'weft, "
               "sums during backward','' skip 1 using (is('peer')):3 with boxes lc rgb '#e69f00' "
               f"{peer_title},'' skip 1 using (is('ideal')-0.42):3:(0.84):(0) with vectors nohead "
               "dt 2 lw 2.5 lc rgb '#333333' title 'ideal: ranks times the speed of one','' skip 1 "
               "using (strcol(1) eq 'ideal' ? NaN : $4):3:(sprintf($3<100?\"%.1f\":\"%.0f\",$3)) "
               "with labels offset 0,0.7 notitle;")
