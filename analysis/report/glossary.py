"""The words of a report that are explained on it; docs/glossary.md has these and more, in the same words."""

# fmt: off
MEANINGS = {
    "bootstrap replicates":
        "Data sets drawn from the fitted noise and fitted again, from which intervals of a law's "
        "parameters come; --bootstrap is their number.",
    "carried":
        "A learning rate at a rung that was not tuned: extrapolated by one power law in N from the "
        "tuned rungs. The arms share its slope; each has its own level.",
    "cell": "One combination of rung, budget and setting. Arms are compared within cells.",
    "censored":
        "A tuned optimum at the edge of its grid after every allowed extension. The loss is then only"
        " a bound: a censored reference makes no arm better, a censored arm is never worse.",
    "cluster":
        "Trials that are not independent, such as the budgets that share a trunk or pairs of one "
        "stream; the column cluster names it, --cluster another column.",
    "compute multiplier":
        "CM(C) = C_ref(L_arm(C)) / C: how many times the arm's compute the reference needs to reach "
        "the arm's loss. Above one, the arm saves compute.",
    "diverged":
        "A trial whose loss became non-finite or stayed above its initial loss. It is a result: it "
        "counts against its arm and is not retried.",
    "equivalent": "Two one-sided tests at 5 % place the difference at every size inside the margin.",
    "exploratory":
        "An estimate over pairs that were added after a verdict without declared looks: a mean and "
        "its standard error, no claim.",
    "extrapolated": "Outside the range of compute or loss in which trials were run.",
    "hold-out": "Points kept from the fit and predicted by it, by default those of the largest rung.",
    "Holm":
        "Holm's step-down correction of the p-values of several arms against one reference, which "
        "keeps the probability of any false claim below 5 %.",
    "interim":
        "What is shown while a planned pair has no result: an estimate and its standard error, "
        "without interval, p-value or verdict.",
    "isoFLOP":
        "A design in which each budget of FLOPs is spent on several sizes; the best size at each "
        "budget follows a power law.",
    "look":
        "A number of seeds, declared in compare: looks before the first result, at which the arms are"
        " judged. Alpha is spent over all looks.",
    "margin": "The difference in nats/token below which two arms count as equivalent.",
    "pair":
        "Two trials of different arms with the same cell and seed: the same initial weights where "
        "shapes agree, and the same order of data. Tuned fields may differ.",
    "pooled":
        "Estimated from the spread within every rung together; its degrees of freedom are pairs (or "
        "points) minus rungs.",
    "prediction":
        "A sign or a value of a difference, written in compare: predict and kept with its time when "
        "the sweep first runs; shown beside what was seen.",
    "rung": "One model size of the ladder.",
    "Satterthwaite":
        "The degrees of freedom of a sum of variances that are each known a little: those of the "
        "rungs, of the test split.",
    "seed-t":
        "The default interval where rungs have repeated seeds: noise between seeds, pooled within "
        "rungs, and Student's t with points minus rungs degrees of freedom. A comparison takes each "
        "rung's own noise, with the degrees of freedom of Satterthwaite.",
    "setting":
        "What a sweep varies beside size, budget, arm and seed: optimizer, schedule, architecture, "
        "fields of grid and zip.",
    "terminal loss":
        "Mean nats/token on the test split after the last step. Tuning sees only the validation "
        "split.",
    "trunk":
        "The part of a run before its cooldown, which trials that differ only in budget or cooldown "
        "share and train once; see trunks.md.",
    "tuned": "A learning rate chosen at its own rung: the vertex of the parabola lies inside the grid.",
}
# fmt: on
