"""weft bench allreduce: rows of one all-reduce for each size, algorithm and wire; Open MPI's and
gloo's beside them. A peer's wire is "open-mpi" or "gloo". Wires and peers take turns. Ranks of a job
that another program has started measure all rounds themselves."""
import os

from bench import Measured, fail
from table import csv, median, value_at

SIZES = ((1 << 30, "GiB"), (10 ** 9, "GB"), (1 << 20, "MiB"), (10 ** 6, "MB"), (1 << 10, "KiB"),
         (10 ** 3, "KB"), (1, "B"))
COLORS = ("d55e00", "56b4e9", "cc79a7", "009e73", "0072b2", "333333")
PEERS = {"mpi": ("Open MPI", "999999", 4), "gloo": ("gloo (PyTorch)", "e69f00", 6)}
TITLES = {"inproc": "threads", "shm": "processes that share memory", "mpi": "processes over MPI"}
MPI_ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FIELDS = ("algorithm", "wire", "bytes", "ranks", "time_us", "stream_time_us", "algbw_gb_s",
          "busbw_gb_s")


def size_text(n_bytes):
    unit, name = next((unit, name) for unit, name in SIZES if n_bytes % unit == 0)
    return f"{n_bytes // unit} {name}"


def is_peer(row):
    return row["wire"] in ("open-mpi", "gloo")


class Allreduce(Measured):
    def main(self):
        self.versions, self.missing = {"mpi": "", "gloo": ""}, {"mpi": "", "gloo": ""}
        super().main()

    # ---- rounds ----

    def add_rows(self):
        sizes = [int(word) for word in self.plans if word.isdecimal()]
        wires, chosen = (self.value[key].split(",") for key in ("wires", "chosen"))
        self.state = {"algorithms": [word for word in self.plans if not word.isdecimal()],
                      "n_algorithms": len(chosen), "n_wires": len(wires), "copy_gb_s": 0.0}
        peers = [("open-mpi", ["mpi"]), ("gloo", ["gloo"])] if self.has_peers else []
        for wire, algorithms in [*((wire, chosen) for wire in wires), *peers]:
            self.rows += [{".streams": [], "bytes": n_bytes, "ranks": self.ranks,
                           "algorithm": algorithm, "wire": wire, "time_us": None,
                           "stream_time_us": None, "algbw_gb_s": None, "busbw_gb_s": None,
                           "sent_bytes": None, "received_bytes": None, "rounds_us": []}
                          for n_bytes in sizes for algorithm in algorithms]
        self.bytes = f"--bytes={','.join(map(str, sizes))}"

    def turns(self, number):
        wires = dict.fromkeys(row["wire"] for row in self.rows)
        return [{".name": wire, "number": number} for wire in wires]

    def run(self, turn):
        wire, value, n = turn[".name"], self.value, str(self.ranks)
        rows = [row for row in self.rows if row["wire"] == wire]
        if is_peer(rows[0]):
            return self.run_peer(rows, rows[0]["algorithm"])
        words = [value["weft"], "bench", "allreduce", self.bytes, f"--algorithm={value['chosen']}",
                 f"--wire={wire}", f"--ranks={n}", f"--memory={value['memory']}", "--quiet"]
        begin = {"inproc": [], "shm": [value["weft"], "run", "-n", n, "--"],
                 "mpi": self.mpirun()}[wire]
        part = self.must([*begin, *words], self.cores, MPI_ENVIRONMENT | {
            "WEFT_BENCH_PART": f"{turn['number']} {self.path('report.json')}"})
        self.state["copy_gb_s"] = max(self.state["copy_gb_s"], part["copy_gb_s"])
        for row, other in zip(rows, part["rows"]):
            if ".why" in other:
                row[".why"] = other[".why"]
                continue
            row["rounds_us"] += other["rounds_us"]
            row[".streams"] += other[".streams"]
            row.update({key: other[key] for key in ("sent_bytes", "received_bytes")})

    def mpirun(self):
        crowded = ["--oversubscribe", "--bind-to", "none"] if self.ranks > self.cores else []
        return ["mpirun", "-n", str(self.ranks), *crowded]

    def run_peer(self, rows, name):
        if self.missing[name]:
            return
        command, self.missing[name] = self.peer_command(name)
        if not command:
            return
        own = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        status, said, report = self.execute(
            [*command, self.bytes, f"--json={self.path('report.json')}"], self.cores,
            own | MPI_ENVIRONMENT)
        if status or report is None:
            self.missing[name] = self.last_line(said)
            return
        self.versions[name] = str(report.get("version", ""))[:99]
        if name == "mpi" and not self.versions[name].startswith("Open MPI"):
            self.missing[name] = f"mpirun and mpicc are of another MPI: {self.versions[name]}"
            return
        times = {row["bytes"]: row["time_us"] for row in report["rows"]}
        for row in rows:
            if not times.get(row["bytes"]):
                fail(f"{name}: its report has no time for {row['bytes']} bytes")
            row["rounds_us"].append(float(times[row["bytes"]]))

    def peer_command(self, name):
        """Or None, and why there is none. Compiles Open MPI's program once."""
        value, program, store = self.value, self.path("peer"), self.path("store")
        if name == "gloo":
            if os.path.exists(store):
                os.remove(store)
            command = [value["weft"], "run", "-n", str(self.ranks), "--", value["peer_python"],
                       value["gloo_script"], f"--store={store}"]
            missing = "gloo_allreduce.py is not installed with weft"
            return (command, "") if value["gloo_script"] else (None, missing)
        if not value["mpi_source"]:
            return None, "mpi_allreduce.c is not installed with weft"
        if not os.access(program, os.X_OK):
            _, said, _ = self.execute(["mpicc", "-O2", "-o", program, value["mpi_source"]],
                                      self.cores)
            if not os.access(program, os.X_OK):
                return None, f"mpicc: {self.last_line(said)}"
        return [*self.mpirun(), program], ""

    # ---- results ----

    def finish(self):
        """busbw is counted as nccl-tests do. The first row of each wire and algorithm has the reason
        why all of its sizes are left out."""
        reasons = [row[".why"] for row in self.rows if ".why" in row]
        if reasons and not self.is_measured and not any(
                row["rounds_us"] for row in self.rows if not is_peer(row)):
            fail(reasons[0], 2)
        self.sizes = sorted({row["bytes"] for row in self.rows})
        n, first = self.ranks, self.sizes[0]
        self.left_out = [{key: row[key] for key in ("algorithm", "wire")} | {"why": row[".why"]}
                         for row in self.rows if ".why" in row and row["bytes"] == first]
        # Each rank reads its slice of all n buffers, and writes it to all: 2 n bytes through memory
        # for one of the buffer, of which busbw counts 2 (n - 1) / n. So fast are plain copies.
        self.copy = self.state["copy_gb_s"] * (n - 1) / n / n
        self.rows = [row for row in self.rows if row["rounds_us"]]
        for row in self.rows:
            us = median(row["rounds_us"])
            row.update({"time_us": us, "stream_time_us": median(row.get(".streams")),
                        "algbw_gb_s": row["bytes"] / us / 1e3,
                        "busbw_gb_s": row["bytes"] / us / 1e3 * 2 * (n - 1) / n,
                        ".size": size_text(row["bytes"])})
            for name in ("sent", "received"):
                moved = value_at(row, f"{name}_bytes")
                row[f".{name}_x"] = None if moved is None else moved / row["bytes"]

    def best(self, n_bytes, *wires):
        """The fastest row of such a wire; None: there is none."""
        rows = [row for row in self.rows if row["bytes"] == n_bytes and row["wire"] in wires]
        return min(rows, key=lambda row: row["time_us"], default=None)

    def fastest(self, n_bytes):
        """Peers are processes, so they are compared with the fastest of weft's runs in processes."""
        return self.best(n_bytes, "shm", "mpi") or self.best(n_bytes, "inproc")

    def ratio(self, n_bytes, wire):
        own, peer = self.fastest(n_bytes), self.best(n_bytes, wire)
        return peer["time_us"] / own["time_us"] if own and peer else None

    # ---- table and report ----

    def say_rows(self):
        state, rows = self.state, []
        has_groups = state["n_algorithms"] > 1 or state["n_wires"] > 1 or self.has_peers
        for n_bytes in self.sizes:
            group = [row for row in self.rows if row["bytes"] == n_bytes]
            if group:
                group[0][".begins"] = has_groups
            rows += group
        self.say()
        self.say_table([("bytes", ".size", 9, "text"), ("algorithm", "algorithm", -10, "text"),
                        ("wire", "wire", -9, "text"), ("time us", "time_us", 11, 1),
                        ("by stream", "stream_time_us", 11, 1), ("algbw", "algbw_gb_s", 8, 2),
                        ("busbw GB/s", "busbw_gb_s", 10, 2), ("sent x", ".sent_x", 9, 2),
                        ("received x", ".received_x", 10, 2)], rows)
        self.say()
        self.say(f"time: of a call, the longest of the ranks', median of {self.repeat} rounds; by "
                 "stream: through a work handle")
        self.say("sent, received: in buffers, by the rank that moves the most")
        self.say(f"memory: copies in all ranks read and write {state['copy_gb_s']:.1f} GB/s; as "
                 "many bytes move in an all-reduce past the caches at a busbw of "
                 f"{self.copy:.1f} GB/s")
        self.say("every sum was checked")
        for n_bytes in self.sizes:
            texts = [f"{self.ratio(n_bytes, wire):.2f} x as fast as {name}" for wire, name in
                     (("open-mpi", "Open MPI"), ("gloo", "gloo")) if self.ratio(n_bytes, wire)]
            if texts:
                own = self.fastest(n_bytes)
                self.say(f"{size_text(n_bytes):>9}  {own['algorithm']} on {own['wire']}:  "
                         f"{', '.join(texts)}")
        for row in self.left_out:
            self.say(f"left out: {row['algorithm']} on {row['wire']}: {row['why']}")
        if any(self.versions.values()):
            self.say(f"beside: {', '.join(filter(None, self.versions.values()))}")
        for key, name in (("mpi", "Open MPI"), ("gloo", "gloo")):
            if self.missing[key]:
                self.say(f"no figures of {name}'s: {self.missing[key]}")

    def report(self):
        state = self.state
        report = {"weft": self.value["version"], "ranks": self.ranks, "cores": self.cores,
                  "repeat": self.repeat, "memory": self.value["memory"],
                  "copy_gb_s": state["copy_gb_s"], "copy_busbw_gb_s": self.copy, "checked": True,
                  "rows": self.public_rows(), "left_out": self.left_out}
        if self.has_peers:
            report |= {"weft_over_peer": [{"bytes": n, "open_mpi": self.ratio(n, "open-mpi"),
                                           "gloo": self.ratio(n, "gloo")} for n in self.sizes],
                       "open_mpi_version": self.versions["mpi"],
                       "gloo_version": self.versions["gloo"]}
            report |= {key: self.missing[name] for name, key in
                       (("mpi", "no_open_mpi"), ("gloo", "no_gloo")) if self.missing[name]}
        return report

    # ---- pictures ----

    def charts(self):
        for wire in TITLES:
            if self.best(self.sizes[0], wire):
                yield self.chart_of_wire(wire)
        yield self.chart_of_traffic()

    def looks(self):
        """Of weft's algorithms, in their order, then of its peers: title, colour, point."""
        own = {name: (name, COLORS[k % 6], 5 + k % 9)
               for k, name in enumerate(self.state["algorithms"])}
        return own | PEERS

    def chart_of_wire(self, wire):
        """Bus bandwidth against bytes. All tics are in binary units, also of other sizes."""
        lines, curves, points = csv(*FIELDS), "", 3.0
        for name, (title, color, point) in self.looks().items():
            rows = [row for row in self.rows if row["algorithm"] == name
                    and (wire != "inproc" if is_peer(row) else row["wire"] == wire)]
            lines += "".join(csv(*(row[field] for field in FIELDS)) for row in rows)
            if rows:
                curves += (f"csv skip 1 using (strcol(1) eq '{name}' ? $3 : NaN):8 with linespoints "
                           f"lw 3 pt {point} ps {points:g} lc rgb '#{color}' title \"{title}\",")
                points = max(points - 0.35, 1)  # a lower line keeps a visible edge
        tics = ""
        for n in self.sizes:
            place = min(3, (n.bit_length() - 1) // 10)
            unit = ("B", "KiB", "MiB", "GiB")[place]
            tics += f"{',' * bool(tics)}'{n / 1024 ** place:.3g} {unit}' {n}"
        return (f"allreduce_{wire}", lines, f"all-reduce of {self.ranks} ranks, {TITLES[wire]}",
                "set ylabel 'bus bandwidth (GB/s)'; set xlabel 'buffer of a rank'; set logscale x "
                f"2;set logscale y; set xtics ({tics}) scale 0.5; set xrange "
                f"[{self.sizes[0] / 1.4:.9g}:{self.sizes[-1] * 1.4:.9g}];stats csv skip 1 using 8 "
                f"nooutput name 'y'; copy={self.copy:.9g};set yrange "
                "[y_min/1.6:(y_max>copy?y_max:copy)*1.6];set key outside right center vertical "
                "maxrows 20 Left reverse samplen 2 spacing 1.3; set rmargin 28;"
                f"plot {curves} copy with lines dt 2 lw 2.5 lc rgb '#333333' title 'copying as many "
                "bytes';")

    def chart_of_traffic(self):
        """For each algorithm a group of bars, one a rank: bytes sent below bytes received. Of the
        largest buffer, on whichever wire has it first."""
        lines = csv("algorithm", "rank", "sent_x_bytes", "received_x_bytes", "x")
        tics, x, n = [], 0.0, self.ranks
        width = 8 / n if n > 8 else 1
        for name in self.state["algorithms"]:
            rows = [row for row in self.rows if row["algorithm"] == name and row["sent_bytes"]]
            if not rows:
                continue
            row = max((row for row in rows if row["wire"] == rows[0]["wire"]),
                      key=lambda row: row["bytes"])
            tics.append(f"'{name}' {x + width * (n - 1) / 2:.9g}")
            for rank in range(n):
                lines += csv(name, rank, row["sent_bytes"][rank] / row["bytes"],
                             row["received_bytes"][rank] / row["bytes"], x)
                x += width
            x += 1.2
        number, rank = ("", "") if n * self.state["n_algorithms"] > 48 else ("%.3g", "%d")
        return ("allreduce_traffic", lines,
                f"buffers moved by each of {n} ranks in an all-reduce",
                f"set ylabel 'moved by a rank (buffers)'; set xtics ({','.join(tics)}) scale 0 font "
                f"',20' offset 0,-0.9; set bmargin 5.5; set boxwidth {0.9 * width:.9g}; set xrange "
                f"[-1:{x - 1.2 + 0.4 * width:.9g}];stats csv skip 1 using ($3+$4) nooutput name "
                "'top'; set yrange [0:top_max*1.12];"
                # The hot device has a colour of its own.
                "hot(x)=(strcol(1) eq 'root' && $3>1 ? $5 : NaN);plot csv skip 1 using 5:($3+$4) "
                "with boxes lc rgb '#56b4e9' title 'receives','' skip 1 using 5:3 with boxes lc rgb "
                "'#0072b2' title 'sends','' skip 1 using (hot(0)):($3+$4) with boxes lc rgb "
                "'#f2ae8a' notitle,'' skip 1 using (hot(0)):3 with boxes lc rgb '#d55e00' notitle,"
                f"'' skip 1 using 5:($3+$4):(sprintf('{number}',$3+$4)) with labels offset 0,0.7 "
                f"notitle,'' skip 1 using 5:(0):(sprintf('{rank}',$2)) with labels offset 0,-0.7 "
                "textcolor rgb '#777777' font ',14' notitle;")
