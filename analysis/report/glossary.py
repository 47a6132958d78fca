"""The words of a report that are explained on it; docs/glossary.md has these and more, in the same words."""

# fmt: off
MEANINGS = {
    "carried":
        "A learning rate at a rung that was not tuned: extrapolated by one power law in N from the "
        "tuned rungs. The arms share its slope; each has its own level.",
    "censored":
        "A tuned optimum at the edge of its grid after every allowed extension. The loss is then only"
        " a bound: a censored reference makes no arm better, a censored arm is never worse.",
    "compute multiplier":
        "CM(C) = C_ref(L_arm(C)) / C: how many times the arm's compute the reference needs to reach "
        "the arm's loss. Above one, the arm saves compute.",
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
    "look":
        "A number of seeds, declared in compare: looks before the first result, at which the arms are"
        " judged. Alpha is spent over all looks.",
    "margin": "The difference in nats/token below which two arms count as equivalent.",
    "pair":
        "Two trials of different arms with the same cell and seed: the same initial weights where "
        "shapes agree, and the same order of data. Tuned fields may differ.",
    "rung": "One model size of the ladder.",
}
# fmt: on
