"""Writes what each sweep of ``sweeps/paper`` detects and takes into its head and into docs/paper-sweeps.md.

    python tools/paper_sweeps.py

The figures are those of ``scalevec plan paper/NAME --without-corpus``; nothing is run.
"""

import re
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from scalevec.analysis.power.detectable import TYPICAL, Detectable, PowerAnalysis
from scalevec.orchestrator.costs import H100_SHARE
from scalevec.orchestrator.progress import Progress
from scalevec.orchestrator.sources.sources import load_sweep
from scalevec.orchestrator.sweep.corpus_of_sweep import unprepared_facts
from scalevec.orchestrator.sweep.planning import ONE_SETTING, Row, gpu_hours, planned, power
from scalevec.orchestrator.sweep.sweep_run import SweepRun

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "paper-sweeps.md"
FOLDER = CHECKOUT / "sweeps" / "paper"
ORDER = (
    "as-run", "as-run-moe", "node", "main", "mixture", "scaling", "removal", "removal-tuned", "decay",
    "optimizers", "ablation", "overhead", "theory",
)  # fmt: skip
WITHOUT_LOSSES = ("overhead", "theory")
"""Sweeps that compare no losses."""
ONE_RUN_EACH = ("as-run", "as-run-moe")
"""Sweeps whose design detects nothing by itself: one run of each arm at a size."""
FLEETS = (8, 64)


@dataclass(frozen=True)
class PaperSweep:
    """One sweep file with its plan."""

    name: str
    rows: list[Row]
    power: PowerAnalysis

    @classmethod
    def of(cls, name: str) -> "PaperSweep":
        """The plan of ``paper/NAME`` at the assumed speed of a GPU."""
        with tempfile.TemporaryDirectory() as folder:
            sweep = load_sweep(f"paper/{name}", Path(folder), look_for_files=False)
            run = SweepRun(sweep, Path(folder), Progress(), unprepared_facts(sweep), only_plan=True)
            rows = planned(run)
            return cls(name, rows, power(run, rows))

    @property
    def path(self) -> Path:
        """The sweep file."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def effect(self) -> str:
        """What the head of the file says of the paper."""
        head = self.path.read_text(encoding="utf-8").split("\n\n")[0].replace("\n# ", " ")
        sentence = re.search(r"The paper: (.*?)(?= Detects | Takes | Look at it first)", head)
        assert sentence is not None, f"{self.path} does not say what the paper found"
        return sentence[1]

    @property
    def hours(self) -> float:
        """H100-hours at the assumed MFU."""
        return gpu_hours(self.rows)

    @property
    def hours_to_tune(self) -> float:
        """Those of them that tuning takes."""
        return gpu_hours([row for row in self.rows if row["stage"] == "tuning"])

    @property
    def detects(self) -> bool:
        """Whether its design detects anything by itself."""
        return self.name not in (*WITHOUT_LOSSES, *ONE_RUN_EACH)

    @property
    def longest_days(self) -> float:
        """Of the longest trial on eight GPUs."""
        seconds = max(row["seconds"] * max(row["gpus"], 1) for row in self.rows)
        return float(seconds) / 8 / 86_400

    @property
    def _alone(self) -> Detectable | None:
        return next((part for part in self.power.parts if part.what == ONE_SETTING), None)

    def heads(self) -> list[str]:
        """The lines of comment that say what the design detects and takes."""
        tuning = f", {_count(self.hours_to_tune)} of them to tune" if self.hours_to_tune else ""
        takes = f"# Takes {_count(self.hours)} H100-hours at {_percent(H100_SHARE)} MFU{tuning}."
        if not self.detects:
            return [takes]
        alone = f"; in one setting alone {_detected(self._alone)}" if self._alone else ""
        noise = "# (in brackets: at half and at twice the noise typical of its sizes)."
        design = f"{_detected(self.power.design)} nats/token{alone}"
        return [f"# Detects with 80 % power {design}", noise, takes]

    def with_head(self) -> str:
        """The text of the file with these lines before its last line of comment."""
        text = self.path.read_text(encoding="utf-8")
        text = re.sub(r"(?m)^# (Detects with|\(in brackets|Takes ).*\n", "", text)
        lines = "\n".join(self.heads())
        return text.replace("# Look at it first", f"{lines}\n# Look at it first", 1)

    def cells(self) -> list[str]:
        """Its row of the page's table."""
        design = _detected(self.power.design) if self.detects else "-"
        alone = _detected(self._alone) if self._alone and self.detects else "-"
        again = dict.fromkeys(row["rung"] for row in self.rows if row["recompute"] == "block")
        memory = max(row["memory_bytes"] for row in self.rows) / 1e9
        return [
            self.name,
            self.effect.rstrip("."),
            design,
            alone,
            _count(self.hours),
            _count(self.hours_to_tune) if self.hours_to_tune else "-",
            *(_days(self.hours / 24 / fleet) for fleet in FLEETS),
            _days(self.longest_days),
            f"{memory:.0f}" + (f" (recomputed: {', '.join(again)})" if again else ""),
        ]


def _detected(effect: Detectable) -> str:
    assert effect.difference is not None
    assert effect.range is not None
    return "{:.4f} [{:.4f}, {:.4f}]".format(effect.difference, *effect.range)


def _count(hours: float) -> str:
    return f"{float(f'{hours:.3g}'):,.0f}" if hours >= 100 else f"{hours:.3g}"


def _days(days: float) -> str:
    return f"{days:.0f}" if days >= 10 else f"{days:.1f}" if days >= 0.1 else "under 0.1"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


HEADER = [
    "sweep", "the paper", "detects, nats/token", "in one setting", "H100-hours", "to tune",
    *(f"days on {fleet}" for fleet in FLEETS),
    "longest trial on 8, days", "most memory, GB",
]  # fmt: skip


def page(sweeps: list[PaperSweep]) -> str:
    """The whole page."""
    comparison = {sweep.name: sweep.hours - sweep.hours_to_tune for sweep in sweeps}
    rows = [HEADER, ["---", "---", *["---:"] * (len(HEADER) - 2)], *(sweep.cells() for sweep in sweeps)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return _filled(f"""# The paper's sweeps: what they could see and what they take

Made by `python tools/paper_sweeps.py` from `scalevec plan paper/NAME --without-corpus` for each of
`sweeps/paper/`.

{table}

**Detects**: the smallest difference between an arm and the reference, over all rungs and settings, that the
comparison finds with 80 % power after Holm's correction for all arms of the sweep; beside it the same in one
setting (an optimizer with a schedule) alone, the one with the fewest pairs. Nobody has measured the noise
between seeds of these models at these sizes. What stands here is extrapolated over three orders of magnitude
by a power law in N, fitted to small sweeps before their strategies were corrected
(`benchmarks/noise_by_size.py`): the sd of a pair's difference is {TYPICAL.sd} at {TYPICAL.n_params:,.0f}
parameters and falls as N^-{TYPICAL.exponent} (standard error 0.07), so that it is {TYPICAL.at(42.5e6):.4f}
at 0.12b and {TYPICAL.at(848e6):.4f} at 1b; in brackets, at half and at twice that noise. Left out of the fit
is 310k, where runs end in two ways, probably as some learn to copy from their context
(`benchmarks/copying.py`): the sd is 0.060 there. Where a larger model has such a size, nothing here holds. A
pilot settles it: five seeds of two arms at 0.12b take 5.5 hours of one GPU; then `scalevec plan paper/NAME
--pilot RESULTS`. The gains that the paper reports are of single runs and scatter over its sizes with an sd
of 0.011.

**Takes**: on H100s of 80 GB, at the MFU that a plan assumes, {_percent(H100_SHARE)} of the dense bf16 peak;
[what one H100 reached](times.md#what-a-plan-reckons-with). Several GPUs together have not been timed.
Evaluation is included, 4 million tokens of each split at most. Checkpoints (2 % of the time at most), what a
sweep measures along the way, and the steps by which a grid of learning rates is extended are not.

- `as-run` and `as-run-moe` are what the paper ran: {_count(comparison["as-run"])} and
  {_count(comparison["as-run-moe"])} H100-hours for the ten runs of each, the rest for the grid of seven
  rates of the baseline, whose choice both arms share. The other sweeps have sequence lengths, batches and
  budgets of their own.
- `node` is for one machine with {FLEETS[0]} GPUs and a week, `main` for {FLEETS[1]} GPUs and a week.
- The settings of `main` and `mixture` are those that the paper has: AdamW and Muon with a cosine, AdamW with
  WSD. Cosines end at a twentieth of the peak, as the paper's.
- `decay` takes the paper's rate for all arms, 4e-3 with Muon. In the other sweeps each arm is tuned at its
  smaller rungs and rates above these are carried, unchecked. A claim is tried without the carried cells too.
""")


def _filled(text: str) -> str:
    """``text`` with paragraphs as wide as those of other pages; tables and lists as they are."""
    parts = text.split("\n\n")
    whole = [textwrap.fill(" ".join(part.split()), 136, break_on_hyphens=False) for part in parts]
    kept = "\n\n".join(old if old[0] in "#|-" else new for old, new in zip(parts, whole, strict=True))
    return kept.rstrip("\n") + "\n"


def main() -> None:
    """Write the heads of the sweep files, then the page."""
    sweeps = [PaperSweep.of(name) for name in ORDER]
    for sweep in sweeps:
        sweep.path.write_text(sweep.with_head(), encoding="utf-8")
    PAGE.write_text(page(sweeps), encoding="utf-8")


if __name__ == "__main__":
    main()
