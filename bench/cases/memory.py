"""weft bench memory: one recipe under many plans, each a row: the bytes that a rank needs, planned
and measured, the time of a step, and the bytes that it sends. PyTorch's DDP and FSDP beside them."""
import mmap
import os
import time

from bench import Bench, fail
from table import median, ratio, text_of_bytes, value_at

WAYS = ("ddp", "fsdp", "fsdp-recompute")
DISK = ("disk_bytes", "disk_plain_ms", "disk_share")
CHUNK = 4 << 20
MOST_BYTES = 1 << 30  # larger sizes are measured by a part
MIB = 1 << 20


def disk_ms(path, n_bytes):
    """How long the disk needs to read and to write as many bytes by plain calls, past the system's
    cache. The first time takes the bytes from the file system, and is not timed."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
    try:
        fd = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:  # a file system without O_DIRECT leaves the file
        if os.path.exists(path):
            os.unlink(path)
        fd = os.open(path, flags, 0o600)
    os.unlink(path)
    chunk, places = mmap.mmap(-1, CHUNK), range(0, n_bytes, CHUNK)
    for place in places:
        os.pwrite(fd, chunk, place)
    begin = time.monotonic()
    for place in places:
        os.preadv(fd, [chunk], place)
    for place in places:
        os.pwrite(fd, chunk, place)
    os.close(fd)
    return (time.monotonic() - begin) * 1e3


class Memory(Bench):
    # ---- rows ----

    def add_rows(self):
        """weft has read the plans: each is "RANKS PLAN"."""
        for n_ranks, plan in (line.split(" ", 1) for line in self.plans):
            self.add(plan or "one rank", plan, int(n_ranks))
            self.rows[-1] |= dict.fromkeys(("parameter_bytes", "optimizer_bytes", *DISK,
                                            "weights_sha256"))
        # Sums have the same order under every plan: that of as many lanes as the largest has ranks.
        self.most = max(row["ranks"] for row in self.rows)
        for way in WAYS if self.has_peers else ():
            self.add(f"PyTorch {way}", way, self.ranks)
            self.rows[-1][".peer"] = True
            self.most = max(self.most, self.ranks)

    def add(self, name, plan, n_ranks):
        self.rows.append({".name": name, ".plan": plan, ".disk_ms": [], "plan": plan,
                          "ranks": n_ranks, "peak_bytes": {"planned": None, "measured": None},
                          "step_ms": None, "runs": [], "sent_bytes": None})

    # ---- runs ----

    def row_words(self, row, name):
        return [*self.words(name),
                *(f"--{key}={self.most}" for key in ("lanes", "micro") if key not in self.given),
                f"--plan={row['.plan']}"]

    def plan(self, row):
        """The highest peak keeps parameters and the optimizer's state all the time."""
        ranks = self.weft(self.row_words(row, "plan"), 1)["ranks"]
        most = max(ranks, key=lambda rank: rank["peak_bytes"])
        row["optimizer_bytes"] = most["optimizer_bytes"]
        row["parameter_bytes"] = most["state_bytes"] - most["optimizer_bytes"]

    def run(self, row):
        n = row["ranks"]
        if ".peer" in row:
            return self.run_peer(row)
        if not row["runs"]:
            self.plan(row)
        report = self.train(row, [*self.row_words(row, "bench train"), f"--repeat={self.steps}",
                                  *([f"--ranks={n}"] if n > 1 else [])])
        peaks, before = report.get("peak_bytes", {}), row["peak_bytes"]["measured"]
        if not peaks.get("measured"):
            fail(f"a run of {row['plan']} reports no peak")
        if before and before != peaks["measured"]:
            fail(f"plan {row['plan']}: two runs have different peaks; this is a bug of weft")
        row.update(peak_bytes=peaks, sent_bytes=report["sent_bytes"])
        self.add_time(row, report)
        self.measure_disk(row, sum(report["disk_peak_bytes"]["planned"]))

    def run_peer(self, row):
        """A way that fails is left out; the table says why."""
        report, why = self.peer(row["ranks"], self.batch // row["ranks"], [f"--way={row['plan']}"])
        if report is None:
            row.update({".left_out": True, "no_figures": why})
        else:
            row["peak_bytes"]["measured"] = report.get("peak_bytes")
            self.add_time(row, report)

    def add_time(self, row, report):
        ms = report.get("step_ms", {}).get("median")
        if not ms:
            fail(f"a run of {row['plan']} reports no step's time")
        row["runs"].append(float(ms))

    def measure_disk(self, row, n_bytes):
        """In the folder that files of offload= are in."""
        if n_bytes:
            n = -(-min(n_bytes, MOST_BYTES) // CHUNK) * CHUNK
            row["disk_bytes"] = n_bytes
            try:
                row[".disk_ms"].append(disk_ms(self.path("disk"), n) * n_bytes / n)
            except OSError as error:
                fail(f"a file of {n} bytes in {self.folder}: {error.strerror}")

    # ---- results ----

    def finish(self):
        """A plan says where tensors are, and may change no bit of them; with sums=free it may."""
        for row in self.rows:
            row["step_ms"] = median(row["runs"])
            plain = row["disk_plain_ms"] = median(row[".disk_ms"])
            row["disk_share"] = ratio(plain, row["step_ms"])
            for key in DISK if plain is None else ():
                row.pop(key, None)
        rows = [row for row in self.rows if ".peer" not in row and "sums=free" not in row["plan"]]
        for row in rows:
            if row["weights_sha256"] != rows[0]["weights_sha256"]:
                fail(f"the weights are {rows[0]['weights_sha256'][:12]}... under the plan "
                     f"{rows[0]['plan']} and {row['weights_sha256'][:12]}... under {row['plan']}; "
                     "this is a bug of weft")

    def say_rows(self):
        self.say()
        self.say_table([("plan", ".name", -35, "text"), ("ranks", "ranks", 6, "text"),
                        ("planned", "peak_bytes.planned", 13, "bytes"),
                        ("measured", "peak_bytes.measured", 13, "bytes"),
                        ("ms a step", "step_ms", 11, 2), ("sent", "sent_bytes", 13, "bytes")])
        self.say()
        self.say("bytes are those of the rank with the most; weft: bytes on its device; PyTorch: "
                 "growth of the")
        self.say("process since before the model was made")
        self.say("all of weft's rows have the same weights, bit for bit")
        for row in self.rows:
            if row.get("disk_share"):
                self.say(f"{row['.name']}: {text_of_bytes(row['disk_bytes'])} on disk; plain reads "
                         f"and writes of as much take {row['disk_plain_ms']:.2f} ms, "
                         f"{100 * row['disk_share']:.0f} % of a step")

    # ---- pictures ----

    def charts(self):
        peaks, trade, n = "row,parameters,optimizer,others,all\n", "row,mib,ms,peer\n", 0
        for row in self.rows:
            most = value_at(row, "peak_bytes.measured")
            if most is None:
                continue
            most, n, name = most / MIB, n + 1, row[".name"]
            parts = [max(0, row.get(f"{part}_bytes") or 0) / MIB
                     for part in ("parameter", "optimizer")]
            peaks += '"{}",{:.6g},{:.6g},{:.6g},{:.6g}\n'.format(
                name.replace(",", "\\n"), *parts, most - sum(parts), most)
            trade += '"{}",{:.6g},{:.6g},{:d}\n'.format(
                name.replace(",", " "), most, row["step_ms"], ".peer" in row)
        title = self.chart_title()
        # From the bottom: permanent memory, then temporary memory.
        yield ("memory", peaks, f"{title}: peak bytes by plan",
               "set ylabel 'MiB of the rank with the most'; set xtics scale 0 font ',13'; set "
               "bmargin 8;set style data histograms; set style histogram rowstacked; set boxwidth "
               "0.6;stats csv skip 1 using 5 nooutput name 'top';set yrange [0:top_max*1.12]; "
               f"set xrange [-0.6:{n - 1}.6];plot csv skip 1 using 2:xtic(1) lc rgb '#0072b2' title "
               "'parameters','' skip 1 using 3 lc rgb '#e69f00' title 'optimizer','' skip 1 using 4 "
               "lc rgb '#999999' title 'gradients, activations, gathered parameters; PyTorch: all',"
               "'' skip 1 using 0:5:(sprintf('%.4g',$5)) with labels offset 0,0.7 notitle;")
        yield ("memory_time", trade, f"{title}: a step's time against its bytes",
               "set xlabel 'MiB of the rank with the most'; set ylabel 'ms a step';stats csv skip 1 "
               "using 2:3 nooutput name 'top';set xrange [0:top_max_x*1.35]; set yrange "
               "[0:top_max_y*1.3];plot csv skip 1 using ($4==0?$2:NaN):3 with points pt 7 ps 2 lc "
               "rgb '#0072b2' title 'weft','' skip 1 using ($4==1?$2:NaN):3 with points pt 5 ps 2 "
               "lc rgb '#e69f00' title 'PyTorch','' skip 1 using 2:3:1 with labels left offset "
               "1,0.4 font ',14' notitle;")
