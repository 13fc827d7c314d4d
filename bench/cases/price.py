"""weft bench price: CPU time and memory that lanes and slices cost one rank, which needs neither."""
from bench import Bench, fail

RECIPES = (["--lanes=1", "--micro=1", "--slices=1"], ["--slices=1"], [])


class Price(Bench):
    def add_rows(self):
        self.say(f"{self.model} on one rank; {self.repeat} rounds; a run is an untimed and "
                 f"{self.steps} timed steps")
        self.say()
        self.rows = [{".name": " ".join(words) or "the default recipe", ".words": words, "ranks": 1,
                      "plan": None, "recipe": None, "cpu_ms": None, "over": None, "runs": []}
                     for words in RECIPES]

    def run(self, row):
        report = self.train(row, [*self.words("bench train"), *row[".words"],
                                  f"--repeat={self.steps}"])
        recipe = report["recipe"]
        row["recipe"] = " ".join(f"--{key} {recipe[key]}" for key in ("lanes", "micro", "slices"))
        row["peak_bytes"] = report["peak_bytes"]
        if not row[".words"]:
            self.recipe = recipe
        if not report.get("cpu_ms"):
            fail("a run reports no CPU time")
        row["runs"].append(report["cpu_ms"])

    def after_first(self):
        """Only a run knows its defaults, so equal rows are found after the first round."""
        rows = {}
        for row in self.rows:
            rows.setdefault(row["recipe"], row)
        self.rows = list(rows.values())

    def finish(self):
        for row in self.rows:
            row["cpu_ms"] = min(row["runs"])
            row["over"] = row["cpu_ms"] / min(self.rows[0]["runs"]) - 1

    def say_rows(self):
        self.say_table([("recipe", "recipe", -36, "text"), ("CPU ms a step", "cpu_ms", 14, 2),
                        ("over", "over", 10, "percent"),
                        ("planned peak", "peak_bytes.planned", 14, "bytes")])
