"""weft bench published: predicted and published times and memory, side by side."""
from itertools import groupby

from bench import Measured


class Published(Measured):
    def finish(self):
        """Errors of predictions are fractions of the published value; null: it is not published, or
        the run ended out of memory."""
        for row in self.rows:
            is_out = row[".fits"] is False
            note = ("" if row["fits"] else " out of memory") if row["fits"] != is_out else (
                " fits; published: out of memory" if is_out else " out of memory; published: fits")
            row[".is_wrong"], row[".note"] = row["fits"] == is_out, note
            seconds, gb = row["published_s"], None if is_out else row["published_gb"]
            row["error"] = row["predicted_s"] / seconds - 1 if seconds else None
            row["error_gb"] = row["predicted_gb"] / gb - 1 if gb else None

    def errors(self, field, name, rows):
        """Prints mean and worst, and returns them."""
        errors = [abs(row[field]) for row in rows if row[field] is not None]
        if not errors:
            return None, None
        mean, worst = sum(errors) / len(errors), max(errors)
        self.say(f"{name}: mean error {100 * mean:.1f} %, worst {100 * worst:.1f} %, {len(errors)} "
                 "rows")
        return mean, worst

    def say_rows(self):
        """Rows in a run of one source and cluster are a table."""
        for (source, _), rows in groupby(self.rows, lambda row: (row[".source"], row["cluster"])):
            rows = list(rows)
            self.say()
            self.say(source or "no source")
            self.say_table([("published run", "name", -40, "text"),
                            ("s a step", "published_s", 10, 3), ("predicted", "predicted_s", 10, 3),
                            ("error", "error", 8, "error"), ("GB", "published_gb", 8, 1),
                            ("predicted", "predicted_gb", 9, 1), ("error", "error_gb", 8, "error"),
                            ("", ".note", 0, "text")], rows)
            self.errors("error", "time", rows)
        self.say()
        self.time = self.errors("error", "time", self.rows)
        self.memory = self.errors("error_gb", "memory", self.rows)
        self.n_wrong = sum(row[".is_wrong"] for row in self.rows)
        self.say(f"out of memory: {self.n_wrong} rows predicted wrongly")

    def report(self):
        return {"weft": self.value["version"], "rows": self.public_rows(),
                "mean_error": self.time[0], "worst_error": self.time[1],
                "mean_error_gb": self.memory[0], "worst_error_gb": self.memory[1],
                "n_wrong_fits": self.n_wrong}
