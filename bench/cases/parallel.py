"""weft bench model-parallel: one recipe timed under many plans and microbatch sizes.

Why a pipeline of n stages is not n times as fast as one device. All of it is measured: the division
of each rank's time, and single devices with the same and with the best split.

    pipeline = compute + bubble + transfer + wait + host     (mean of the ranks)
    single   = compute + idle
    pipeline - single / n = bubble + transfer + wait + host - idle / n
                            + (compute of all ranks - compute of the single device) / n

The bubble includes imbalance: while the longest stage computes, the others must wait. The last line
includes the cost of the smaller microbatch; the rest comes from sharing memory.
"""
from bench import Measured
from table import csv

NAMES = ("single device", "model parallel", "pipeline")
RED, GREY, BLUE, GREEN = 0xd55e00, 0x999999, 0x0072b2, 0x009e73
LOSSES = (("ideal_seconds", "ideal: the best single device, divided by its number"),
          ("bubble", "bubble: the pipeline fills and drains"),
          ("imbalance", "imbalance: the longest stage over the mean one"),
          ("small_microbatch", "small microbatches: this split over the best, one device"),
          ("shared_memory", "shared memory: busy neighbours, at the same split"),
          ("transfer", "transfer"), ("waiting", "waiting: waking up, queues, the host"),
          ("single_idle", "less idle time of the single device"), ("seconds", "measured"))


def mean(values):
    return sum(values) / len(values)


class Parallel(Measured):
    def finish(self):
        """Groups rows by name, cut and schedule, and sorts these by split; the tutorial's cut is the
        first."""
        self.n_batches = self.state["batches"]
        self.images = self.n_batches * self.batch
        for key in ("split", "schedule"):
            self.rows.sort(key=lambda row: row[key])
        self.rows.sort(key=lambda row: row["cut"], reverse=True)
        self.rows.sort(key=lambda row: NAMES.index(row["name"]))
        single, before = self.best(name="single device"), None
        for row in self.rows:
            seconds = row["seconds"]
            row["seconds_mean"] = mean(seconds)
            row["seconds_std"] = mean([(s - mean(seconds)) ** 2 for s in seconds]) ** 0.5
            row["speedup"] = mean(single["seconds"]) / row["seconds_mean"]
            row["images_per_second"] = self.images / row["seconds_mean"]
            row[".stage"] = row["second_stage"] or None
            group = [row[key] for key in ("name", "cut", "schedule")]
            row[".begins"] = before not in (None, group)
            before = group

    def best(self, **wanted):
        """The fastest row with these fields; None: there is none."""
        rows = [row for row in self.rows if all(row[key] == wanted[key] for key in wanted)]
        return min(rows, key=lambda row: mean(row["seconds"]), default=None)

    def loss(self):
        pipeline, single = self.best(name="pipeline"), self.best(name="single device")
        same = pipeline and self.best(name="single device", split=pipeline["split"])
        if not same or not single:
            return None

        def total(row, field):
            return sum(time[field] for time in row["rank_times"])
        n = len(pipeline["rank_times"])
        seconds, single_s = pipeline["seconds_mean"], single["seconds_mean"]
        compute, bubble, transfer = (total(pipeline, field) / n
                                     for field in ("compute", "bubble", "transfer"))
        longest = max(time["compute"] for time in pipeline["rank_times"])
        alone, alone_split = total(single, "compute"), total(same, "compute")
        return {"plan": pipeline["plan"], "split": pipeline["split"], "seconds": seconds,
                "ideal_seconds": single_s / n, "bubble": bubble - (longest - compute),
                "imbalance": longest - compute, "small_microbatch": (alone_split - alone) / n,
                "shared_memory": compute - alone_split / n, "transfer": transfer,
                "waiting": seconds - compute - bubble - transfer,  # with the host's
                "single_idle": (alone - single_s) / n}

    # ---- table and report ----

    def say_rows(self):
        self.say()
        self.say_table([("", "name", -14, "text"), ("schedule", "schedule", -9, "text"),
                        ("2nd stage", ".stage", -10, "text"), ("split", "split", 6, "text"),
                        ("seconds", "seconds_mean", 10, 3), ("std", "seconds_std", 8, 3),
                        ("images/s", "images_per_second", 10, 1), ("speed-up", "speedup", 9, 2),
                        ("predicted", "predicted_seconds", 11, 3)])
        self.say()
        self.say(f"seconds are those of {self.n_batches} batches of {self.batch} images")
        self.say_best("single device", self.best(name="single device"))
        for schedule in self.state["schedules"]:
            self.say_best(schedule, self.best(schedule=schedule))
        loss = self.loss()
        if loss:
            self.say()
            self.say(f"Where the rest of 2 x goes, for {loss['plan']} at split {loss['split']}:")
            for field, text in LOSSES:
                self.say(f"  {text:<58} {loss[field]:8.3f} s "
                         f"{100 * loss[field] / loss['ideal_seconds']:6.1f} %")

    def say_best(self, name, row):
        if row:
            self.say(f"{'best ' + name:<22}{row['plan']:<38} split {row['split']:<4} "
                     f"{row['seconds_mean']:8.3f} s  {row['speedup']:.2f} x")

    def extra_fields(self):
        fields = {"batches": self.n_batches}
        if self.state["devices"]:
            fields["devices"] = self.state["devices"]
        return fields | ({"loss": self.loss()} if self.loss() else {})

    # ---- the tutorial's pictures ----

    def charts(self):
        yield self.chart_of_two()
        yield self.chart_of_three()
        yield self.chart_of_splits()

    def chart_title(self):
        image = self.value["image"]
        return (f"{self.model[:40]}: {self.n_batches} batches of {self.batch} images, {image} x "
                f"{image}")

    def chart_of_bars(self, name, bars, ideal=0.0):
        """`bars`: row, colour, label. `ideal` > 0: a line there."""
        lines = csv("label", "seconds_mean", "seconds_std", "color") + "".join(
            f"\"{label}\",{row['seconds_mean']:.17g},{row['seconds_std']:.17g},{color}\n"
            for row, color, label in bars)
        line = (f"ideal={ideal:.9g}; set arrow from graph 0,first ideal to graph 1,first ideal "
                "nohead back dt 2 lw 2 lc rgb '#333333'; set label sprintf(\"ideal\\n%.2f s\",ideal)"
                " at graph 1,first ideal right offset 0,1.7 textcolor rgb '#333333';"
                if ideal > 0 else "")
        return (name, lines, self.chart_title(),
                "set ylabel 'execution time (s)'; set xtics nomirr scale 0; set bmargin 4.5; set "
                "boxwidth 0.6; stats csv skip 1 using ($2+$3) nooutput name 'top';set yrange "
                f"[0:top_max*1.12]; set xrange [-0.6:{len(bars) - (0.05 if ideal > 0 else 0.4):.9g}]"
                f"; {line}plot csv skip 1 using 0:2:4:xtic(1) with boxes lc rgb variable notitle,'' "
                "skip 1 using 0:($2-$3):(0):(2*$3) with vectors heads size screen 0.007,90 fixed lc "
                "rgb 'black' lw 2 notitle,'' skip 1 using 0:($2+$3):(sprintf('%.2f s',$2)) with "
                "labels offset 0,0.9 notitle;")

    def unsplit(self):
        return (self.best(name="model parallel", schedule="naive", cut=self.state["cut"],
                          split=self.batch), self.best(name="single device", split=self.batch))

    def chart_of_two(self):
        parallel, single = self.unsplit()
        return self.chart_of_bars("mp_vs_rn", [(parallel, RED, "model parallel"),
                                               (single, GREY, "single device")])

    def chart_of_three(self):
        parallel, unsplit = self.unsplit()
        single, pipeline = self.best(name="single device"), self.best(name="pipeline")
        split, cut = self.state["split"], self.state["cut"]
        bars = [(parallel, RED, "model parallel\\nunsplit"),
                (unsplit, GREY, "single device\\nunsplit")]
        if single["split"] == self.batch:
            bars[1] = (unsplit, GREY, "single device\\nunsplit,\\nits best")
        else:
            bars.append((single, GREY,
                         f"single device\\nat its best,\\nsplit {single['split']}"))
        tutorial = self.best(name="pipeline", schedule="1f1b", cut=cut, split=split)
        bars += [(tutorial, BLUE, f"pipeline\\nsplit {split},\\ncut at {cut}"),
                 (pipeline, GREEN, f"best pipeline\\nsplit {pipeline['split']},\\n"
                                   f"{pipeline['schedule']}, balanced")]
        return self.chart_of_bars("mp_vs_rn_vs_pp", bars, single["seconds_mean"] / 2)

    def chart_of_splits(self):
        rows = [row for row in self.rows if row["schedule"] == "none"]
        lines = csv("split", "single_mean", "single_std", "pipeline_mean", "pipeline_std", "ideal")
        for row in rows:
            pipeline = self.best(name="pipeline", schedule="1f1b", cut="balanced",
                                 split=row["split"]) or {}
            lines += csv(row["split"], row["seconds_mean"], row["seconds_std"],
                         pipeline.get("seconds_mean"), pipeline.get("seconds_std"),
                         self.best(name="single device")["seconds_mean"] / 2)
        splits = [row["split"] for row in rows]
        return ("split_size_tradeoff", lines, self.chart_title(),
                "set ylabel 'execution time (s)'; set logscale x; set xtics "
                f"({','.join(map(str, splits))}) scale 0.5; set xrange "
                f"[{min(splits) / 1.15:.9g}:{self.batch * 1.15:.9g}]; set xlabel 'split size (images "
                "in a microbatch)'; set yrange [0:*];plot csv skip 1 using 1:2:3 with yerrorlines lc "
                "rgb '#777777' lw 3 pt 5 ps 1.3 title 'single device','' skip 1 using 1:4:5 with "
                "yerrorlines lc rgb '#0072b2' lw 3 pt 7 ps 1.5 title 'pipeline on 2 devices (1f1b, "
                "balanced cut)','' skip 1 using 1:6 with lines dt 2 lw 2.5 lc rgb '#333333' title "
                "'ideal: best single device / 2';")
