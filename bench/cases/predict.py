"""weft bench predict: the step of several plans, predicted and measured."""
from bench import Measured
from table import csv


def spread(rounds):
    return max(rounds) / min(rounds) - 1 if len(rounds) > 1 else 0


class Predict(Measured):
    def finish(self):
        for row in self.rows:
            row["error"] = row["predicted_ms"] / row["measured_ms"] - 1
            row["spread"] = max(spread(row["measured_rounds_ms"]),
                                spread(row["predicted_rounds_ms"])) or None
        errors = [abs(row["error"]) for row in self.rows]
        self.mean, self.worst = sum(errors) / len(errors), max(errors)

    def say_rows(self):
        self.say()
        self.say_table([("plan", ".name", -30, "text"), ("measured ms", "measured_ms", 12, 2),
                        ("predicted", "predicted_ms", 11, 2), ("error", "error", 9, "error"),
                        ("spread", "spread", 8, "percent"),
                        ("peak", "peak_bytes.measured", 11, "bytes"),
                        ("planned", "peak_bytes.planned", 11, "bytes")])
        self.say(f"mean error {100 * self.mean:.1f} %, worst {100 * self.worst:.1f} %; steps by the "
                 "CPU time of their instructions")

    def extra_fields(self):
        return {"mean_error": self.mean, "worst_error": self.worst}

    def charts(self):
        lines = csv("measured", "predicted", "plan") + "".join(
            csv(row["measured_ms"], row["predicted_ms"], row["plan"]) for row in self.rows)
        yield ("predict", lines, f"{self.chart_title()}: a step's time, predicted and measured",
               "set xlabel 'measured ms'; set ylabel 'predicted ms'; set size square; stats csv skip "
               "1 using 1:2 nooutput name 'top'; m = 1.1*(top_max_x>top_max_y?top_max_x:top_max_y); "
               "set xrange [0:m]; set yrange [0:m]; plot x with lines lc rgb '#999999' title "
               "'equal', csv skip 1 using 1:2 with points pt 7 ps 2 lc rgb '#0072b2' title "
               "'plans';")
