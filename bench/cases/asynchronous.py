"""weft bench async: synchronous, asynchronous and local updates of the same recipe, each a row: its
speed, its losses and the staleness of its gradients, with even workers and with a slow one. Each has
a prediction by weft simulate from one worker's times.

A worker without a server takes compute + update for a share of a batch. With one it takes compute +
update + two transfers: the gradient goes, the parameters come back. The simulation has a core for
each worker and server. A machine with fewer cores is crowded: all compute times are multiplied by
the wanted cores per core. A slow worker sleeps, so it wants less than a core.
"""
from bench import Bench, fail
from table import csv, median, plural, text_of_us

MOST_SLOW = 1000  # WF_SIMULATION_MAX_SLOW
COLORS = ("333333", "999999", "0072b2", "56b4e9", "009e73", "e69f00", "d55e00", "cc79a7")
BAR_WIDTH = 0.36
MOST_BINS = 12  # the last bin also counts all older gradients


def window_of(n_steps):
    return 1 if n_steps < 20 else n_steps // 10


def mean_loss(row, step):
    """The mean of a window of losses, a tenth of all, that ends with the step."""
    n = min(window_of(len(row["losses"])), step + 1)
    return sum(row["losses"][step + 1 - n:step + 1]) / n


class Async(Bench):
    # ---- rows ----

    def add_rows(self):
        """The first two rows measure one worker: alone, and with a server."""
        for name in ("workers", "lanes", "servers", "staleness", "local_steps"):
            setattr(self, name, int(self.value[name]))
        self.slow = float(self.value["slow"])
        self.rows = [{".name": "one worker", ".served": served, "runs": [], ".update_ms": []}
                     for served in (False, True)]
        self.add_updates(1.0)
        if self.slow > 1:
            self.add_updates(self.slow)

    def add(self, update, name, slow, servers=0, shares=None, is_bounded=False):
        """Worker 0 is the slow one. `shares` of lanes by the workers' speeds; None: even."""
        plan = f"dp={self.workers}" + (f",ps={servers}" if servers else "")
        if shares:
            plan += ",lanes=" + "+".join(map(str, shares))
        each = self.lanes // self.workers
        self.rows.append({
            ".name": name, ".lanes": shares or [each] * self.workers, ".staleness": [],
            ".bounded": is_bounded, "update": update, "name": name, "plan": plan, "slow": slow,
            "servers": servers, "samples_per_second": None, "predicted": None, "runs": [],
            "server_busy_predicted": None, "loss": None, "seconds_to_loss": None,
            "test_accuracy": None, "staleness": None, "losses": []})

    def share_lanes(self, slow):
        """Gives each lane to the worker that would end first with it; each has at least one."""
        shares = [1] * self.workers
        for _ in range(self.lanes - self.workers):
            best = min(range(self.workers),
                       key=lambda k: (shares[k] + 1) * (1 if k else slow))
            shares[best] += 1
        return shares

    def add_updates(self, slow):
        self.add("sync", "sync", slow)
        shares = self.share_lanes(slow)
        if slow > 1 and shares[0] != shares[1]:
            self.add("sync", "sync, uneven lanes", slow, shares=shares)
        self.add("async", f"async, staleness {self.staleness}, 1 server", slow, 1, is_bounded=True)
        powers = (1 << k for k in range(self.servers.bit_length()))
        for n in [*(n for n in powers if n < self.servers), self.servers]:
            self.add("async", f"async, no bound, {plural(n, 'server')}", slow, n)
        self.add("local", f"local, {self.local_steps} steps", slow)

    # ---- runs ----

    def train_words(self, n_parts):
        return [*self.words("train"), *([] if "data" in self.given else ["--data=synthetic"]),
                f"--batch={self.batch // n_parts}", f"--lanes={self.lanes // n_parts}",
                f"--steps={self.steps}"]

    def run(self, row):
        if ".served" in row:
            return self.measure_one(row)
        words = [*self.train_words(1), f"--plan={row['plan']}"]
        if row["update"] != "sync":
            words += [f"--workers={self.workers}", f"--update={row['update']}"]
        if row[".bounded"]:
            words.append(f"--staleness={self.staleness}")
        if row["update"] == "local":
            words += [self.given[key] for key in ("local_steps", "outer_lr", "outer_momentum")
                      if key in self.given]
        report = self.slowed(words, row["slow"])
        rate = report.get("images_per_second")
        if "tokens_per_second" in report:
            rate = (report["tokens_per_second"] or 0) / report["recipe"]["tokens"]
        if not rate or not report.get("losses"):
            fail(f"a run of '{row['name']}' reports no speed or no losses")
        self.recipe = self.recipe or report["recipe"]
        if not row["losses"]:
            row.update(losses=report["losses"], test_accuracy=report["test_accuracy"])
        for k, n in enumerate(report.get("staleness", [])):  # the histograms of all runs
            row[".staleness"] += [0] * (k + 1 - len(row[".staleness"]))
            row[".staleness"][k] += n
        row["runs"].append(rate)

    def slowed(self, words, slow):
        value = f"0:{slow:.9g}" if slow > 1 else ""
        return self.weft(words, self.cores, {"WEFT_SLOW_RANK": value})

    def measure_one(self, row):
        words = self.train_words(self.workers)
        words += ["--update=async", "--plan=dp=1,ps=1"] if row[".served"] else ["--profile"]
        report = self.slowed(words, 1)
        row["runs"].append(report["step_ms"]["median"])
        row[".update_ms"].append(sum(op["ms"] for op in report.get("profile", [])
                                     if op["op"] == "update") / self.steps)

    # ---- predictions ----

    def take_costs(self):
        alone, served = self.rows[:2]
        del self.rows[:2]
        step_ms = median(alone["runs"])
        update_ms = min(median(alone[".update_ms"]), step_ms / 2)
        self.costs = {"compute_ms": step_ms - update_ms,
                      "transfer_ms": max(0.0, median(served["runs"]) - step_ms) / 2,
                      "update_ms": update_ms}

    def predict(self, row):
        """Without servers, the fast workers wait while the slow one sleeps, so only the time that
        they compute is crowded."""
        factor, n_each = row["slow"], self.lanes / self.workers
        wanted = (self.workers - 1 + 1 / factor) * self.threads
        wanted += row["servers"] * (row["server_busy_predicted"] or 0)
        crowding = max(1, wanted / self.cores)
        most, slow = (self.costs["compute_ms"] * row[".lanes"][k] / n_each for k in (1, 0))
        slow_ms = (slow * factor * crowding if row["update"] == "async"
                   else slow * (factor - 1 + crowding))
        forward_ms = most * crowding
        slowed = min(slow_ms / forward_ms, MOST_SLOW) if factor > 1 and slow_ms > forward_ms else 1
        words = ["simulate", f"--update={row['update']}", f"--workers={self.workers}",
                 f"--steps={self.steps}", f"--forward-ms={forward_ms!r}", f"--slow={slowed!r}",
                 f"--transfer-ms={self.costs['transfer_ms']!r}",
                 f"--update-ms={self.costs['update_ms']!r}"]
        if row["servers"]:
            words.append(f"--servers={row['servers']}")
        if row[".bounded"]:
            words.append(f"--staleness={self.staleness}")
        if row["update"] == "local":
            words.append(f"--local-steps={min(self.local_steps, self.steps)}")
        found = self.weft([*words, f"--json={self.path('report.json')}", "--quiet"], self.cores)
        row["predicted"] = found["steps_per_second"] * self.batch
        row["server_busy_predicted"] = found["server_busy"] if row["servers"] else None

    # ---- results ----

    def finish(self):
        """Synchronous gradients are never stale; local steps have no common parameters to compare
        with."""
        self.take_costs()
        last = self.steps - 1
        self.target = (float(self.value["target_loss"]) if "target_loss" in self.value
                       else mean_loss(self.rows[0], last))
        for row in self.rows:
            self.predict(row)
            self.predict(row)  # the load of servers is known now
            stale, n = row[".staleness"], sum(row[".staleness"])
            if n:
                oldest = max(k for k, here in enumerate(stale) if here)
                mean = sum(k * here for k, here in enumerate(stale)) / n
                row[".old"] = f"{mean:.2f}, {oldest}"
            is_sync = row["update"] == "sync"
            row["staleness"] = [self.workers * self.steps * self.repeat] if is_sync else stale
            row["samples_per_second"] = median(row["runs"])
            row["loss"] = mean_loss(row, last)
            row["seconds_to_loss"] = next(
                ((step + 1) * self.seconds(row)
                 for step in range(window_of(len(row["losses"])) - 1, len(row["losses"]))
                 if mean_loss(row, step) <= self.target), None)

    def seconds(self, row):
        """Of a step."""
        return self.batch / median(row["runs"])

    def panels(self):
        """Even workers, and those with a slow one: a heading and rows of each."""
        yield "even workers", [row for row in self.rows if row["slow"] <= 1]
        if self.slow > 1:
            yield (f"worker 0 slowed {self.slow:g} x",
                   [row for row in self.rows if row["slow"] > 1])

    def say_rows(self):
        self.say(f"{self.model}: {self.workers} workers, batch {self.batch}, {self.lanes} lanes; "
                 f"{plural(self.repeat, 'round')}")
        for head, rows in self.panels():
            self.say()
            self.say_table([(head, "name", -31, "text"), ("samples/s", "samples_per_second", 11, 1),
                            ("predicted", "predicted", 10, 1), ("loss", "loss", 9, 4),
                            ("s to loss", "seconds_to_loss", 10, 3),
                            ("steps old", ".old", 12, "text")], rows)
        compute, transfer, update = (text_of_us(1e3 * ms) for ms in self.costs.values())
        self.say()
        self.say(f"one worker: {compute} to compute a share of a batch, {transfer} to send the "
                 "parameters one way,")
        self.say(f"{update} to update them; the predictions use these")
        self.say(f"loss: mean of the last {window_of(self.steps)} of {self.steps} steps; s to loss: "
                 f"seconds until such a mean is {self.target:.4f}")
        self.say("steps old: of gradients, mean and maximum")

    def extra_fields(self):
        return {"workers": self.workers, "target_loss": self.target, "one_worker": self.costs}

    # ---- pictures ----

    def charts(self):
        names = [row["name"] for row in list(self.panels())[-1][1]]  # the last panel has all updates
        yield self.chart_of_rates(names)
        yield self.chart_of_losses(names)
        yield self.chart_of_staleness(names)

    def title(self, subject):
        return f"{self.model[:40]}, {self.workers} workers, batch {self.batch}: {subject}"

    def chart_of_rates(self, names):
        """Two bars of an update are side by side; a single one is in the middle."""
        lines = csv("row", "slow", "per_second", "predicted", "x")
        for row in self.rows:
            n = sum(other["name"] == row["name"] for other in self.rows)
            shift = 0 if n < 2 else BAR_WIDTH / 2 if row["slow"] > 1 else -BAR_WIDTH / 2
            lines += csv(row["name"], row["slow"], row["samples_per_second"], row["predicted"],
                         names.index(row["name"]) + shift)
        tics = ",".join('"{}" {}'.format(name.replace(",", "\\n"), k)
                        for k, name in enumerate(names))
        slowed = "title 'one worker slowed'" if self.slow > 1 else "notitle"
        return ("async", lines, self.title("speed by update"),
                f"set ylabel 'samples per second'; set xtics ({tics}) scale 0 font ',13'; set "
                f"bmargin 7;set boxwidth {0.94 * BAR_WIDTH:g}; set xrange "
                f"[-0.6:{len(names) - 0.4:g}];stats csv skip 1 using ($3>$4?$3:$4) nooutput name "
                "'top';set yrange [0:top_max*1.12];plot csv skip 1 using ($2==1?$5:NaN):3 with "
                "boxes lc rgb '#0072b2' title 'even workers','' skip 1 using ($2>1?$5:NaN):3 with "
                f"boxes lc rgb '#e69f00' {slowed},'' skip 1 using 5:4 with points pt 2 ps 1.6 lw 3 "
                "lc rgb 'black' title 'predicted','' skip 1 using "
                "5:3:(sprintf($3<100?\"%.3g\":\"%.0f\",$3)) with labels offset 0,0.7 font ',12' "
                "notitle;")

    def chart_of_panels(self, name, lines, subject, names, has, width, style, axes):
        """Panels one above the other, each with its legend. A row that `has` one is a curve: lines
        with the row's index in the first column. `width`: of bars side by side; 0: lines."""
        title, text = self.title(subject), ""
        for head, rows in self.panels():
            rows = [row for row in rows if has(row)]
            curves = (f"{'csv' if at == 0 else chr(39) * 2} skip 1 using "
                      f"($1=={self.rows.index(row)}?$2+{width * (at - (len(rows) - 1) / 2):.4g}:NaN)"
                      f":3 {style} lc rgb '#{COLORS[names.index(row['name']) % len(COLORS)]}' "
                      f"title '{row['name']}'" for at, row in enumerate(rows))
            text += f"set title '{head}' offset 0,-0.7; plot {','.join(curves)}; "
        return (name, lines, title,
                f"unset title; set multiplot layout {len(list(self.panels()))},1 title \"{title}\"; "
                "set key outside right center vertical maxrows 12 Left reverse font ',13' spacing "
                "1.1; set tmargin 2; set rmargin 30; set tics font ',14'; "
                f"{axes}{text}unset multiplot;")

    def chart_of_losses(self, names):
        lines = csv("row", "seconds", "loss", "name", "slow") + "".join(
            f"{i},{(k + 1) * self.seconds(row):.9g},{mean_loss(row, k):.9g},\"{row['name']}\","
            f"{row['slow']:.9g}\n" for i, row in enumerate(self.rows)
            for k in range(len(row["losses"])))
        return self.chart_of_panels(
            "async_loss", lines, "loss over time", names, lambda row: row["losses"], 0,
            "with lines lw 3", "set xlabel 'seconds'; set ylabel 'loss'; stats csv skip 1 using 3 "
            "nooutput name 'y'; set yrange [y_min:y_max]; ")

    def chart_of_staleness(self, names):
        lines, last = csv("row", "steps", "percent", "name", "slow"), 0
        for i, row in enumerate(self.rows):
            stale = row[".staleness"]
            bins = stale[:MOST_BINS] + [sum(stale[MOST_BINS:])]
            while bins and not bins[-1]:
                bins.pop()
            last = max(last, len(bins) - 1)
            lines += "".join(f"{i},{k},{100 * n / sum(bins):.9g},\"{row['name']}\","
                             f"{row['slow']:.9g}\n" for k, n in enumerate(bins))
        even = next(self.panels())[1]
        width = 0.8 / sum(bool(row[".staleness"]) for row in even)
        older = " (12: or older)" if last >= MOST_BINS else ""
        return self.chart_of_panels(
            "async_staleness", lines, "staleness of gradients", names,
            lambda row: row[".staleness"], width, "with boxes",
            f"set xlabel 'steps old{older}'; set ylabel '% of the gradients'; set yrange [0:100]; "
            f"set xrange [-0.6:{last}.6]; set xtics 1; set boxwidth {0.94 * width:.4g}; ")
