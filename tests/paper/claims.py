"""The claims of the paper's Section V, each with a test of its figures.

The module has 78 claims of a few lines each; that is why it is longer than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.special import ndtri
from scipy.stats import spearmanr

from ldp.consistency import METHODS
from ldp.consistency.baseline import FALSE_POSITIVES
from ldp.estimate import Vector
from tests.paper.datasets import emoji, zipf
from tests.paper.evaluation import DATASETS, olh
from tests.paper.evidence import NAMES, Evidence, Finding, graded, number, overall, span

Assess = Callable[[Evidence], Finding]

FULL, SETS, SMALL, CASE, TOP = "full-domain", "set-value", "set-value-small", "set-case", "top-k"
COUNTS = ("bias", "variance", "distribution")
RANDOM = (SETS, SMALL)
ERRORS = (FULL, SETS, SMALL, CASE, TOP)  # The figures whose value is an MSE

SUM_TO_ONE = ("norm", "norm-mul", "norm-sub", "mle-apx", "norm-cut", "power-ns")
"""The methods whose results sum to 1 according to the paper."""

OTHERS = tuple(method for method in METHODS if method not in SUM_TO_ONE)
ALIKE = 1.02  # Meaning of "the same" and "very close": within 2 %
SIMILAR = 1.25  # Meaning of "similar": within 25 %
TIE = 1.01  # Methods within 1 % of the best count as best


@dataclass(frozen=True)
class Claim:
    """A sentence of Section V and its test. Empty `data` means all data sets."""

    section: str
    quote: str
    needs: tuple[str, ...]
    test: str
    assess: Assess
    data: tuple[str, ...] = ()

    def found(self, rows: Evidence) -> Finding:
        """Returns the measurement, the overall verdict and one per data set."""
        by_data = {name: self.assess(rows.of(name)).verdict for name in self.data or rows.common(self.needs)}
        return Finding(self.assess(rows).measured, overall(by_data), by_data)


CLAIMS: list[Claim] = []  # The claims, in the paper's order


def assess(rows: Evidence) -> list[tuple[Claim, Finding]]:
    """Returns the claims whose figures have rows, each with its finding."""
    return [(claim, claim.found(rows)) for claim in CLAIMS if rows.figures.issuperset(claim.needs)]


def claim(
    section: str, quote: str, needs: tuple[str, ...], test: str, data: tuple[str, ...] = ()
) -> Callable[[Assess], Assess]:
    """Adds a claim to `CLAIMS`; the decorated function is its `assess`."""

    def add(assess: Assess) -> Assess:
        CLAIMS.append(Claim(section, quote, needs, test, assess, data))
        return assess

    return add


class Bias:
    """One method's results in Figures 1 to 3, as counts (Zipf, ε = 1)."""

    def __init__(self, rows: Evidence, method: str) -> None:
        curve = rows.curve("bias", "zipf", method)
        self.bias = np.array([row.value for row in curve])
        self.error = np.array([row.deviation for row in curve]) / curve[0].repeats ** 0.5
        self.variance = rows.values("variance", method, "zipf")
        self.truth = zipf().histogram.astype(np.float64)
        oracle = olh("1", len(self.truth))
        n, p, q = zipf().users, oracle.p, oracle.q
        self.sigma = float(n * q * (1 - q) / (p - q) ** 2) ** 0.5
        self.threshold = -float(ndtri(FALSE_POSITIVES / len(self.truth))) * self.sigma
        self.top = int(np.count_nonzero(self.truth > self.threshold + 4.0 * self.sigma))

    def z(self) -> Vector:
        """Returns the bias in standard errors; 0 for values without variance."""
        z: Vector = np.divide(self.bias, self.error, out=np.zeros_like(self.bias), where=self.error > 0.0)
        return z

    def octaves(self, values: Vector) -> Vector:
        """Returns 10 means, over the ranks 1, 2 to 3, 4 to 7, …, 512 and above."""
        edges = [*(1 << np.arange(10)) - 1, len(values)]
        return np.array([values[low:high].mean() for low, high in pairwise(edges)])


def best(
    figures: Sequence[str], method: str, among: Sequence[str] = tuple(METHODS), worst: bool = False
) -> Callable[[Evidence], Finding]:
    """Returns a test that a method's error is always the lowest (or largest)."""

    def finding(rows: Evidence) -> Finding:
        errors = {name: np.concatenate([rows.values(figure, name) for figure in figures]) for name in among}
        table = np.stack([*errors.values()])
        if worst:
            excess = table.max(axis=0) / errors[method]
            return graded(
                excess <= TIE, f"largest error / {NAMES[method]}: up to {number(float(excess.max()))}"
            )
        excess = errors[method] / table.min(axis=0)
        measured = f"{NAMES[method]} / best: {span(excess)}"
        if not (excess <= TIE).all():
            winner = [*errors][int(table[:, int(excess.argmax())].argmin())]
            measured += f", at the maximum {NAMES[winner]} is best"
        return graded(excess <= TIE, measured)

    return finding


def ratio(
    figures: Sequence[str], method: str, to: str, low: float, high: float
) -> Callable[[Evidence], Finding]:
    """Returns a test that the ratio of two methods' errors is in a range."""

    def finding(rows: Evidence) -> Finding:
        parts = []
        for dataset in dict.fromkeys(name for figure in figures for name in rows.datasets(figure)):
            of = [figure for figure in figures if dataset in rows.datasets(figure)]
            quotients = [
                rows.values(figure, method, dataset) / rows.values(figure, to, dataset) for figure in of
            ]
            parts.append((dataset, np.concatenate(quotients)))
        measured = "; ".join(f"{dataset.capitalize()} {span(quotients)}" for dataset, quotients in parts)
        together = np.concatenate([quotients for _, quotients in parts])
        return graded((together >= low) & (together <= high), f"{NAMES[method]} / {NAMES[to]}: {measured}")

    return finding


def lower(figures: Sequence[str], method: str, than: str) -> Callable[[Evidence], Finding]:
    """Returns a test that a method has a lower error than another."""
    return ratio(figures, method, than, 0.0, np.nextafter(1.0, 0.0))


def _octave_sizes(d: int) -> Vector:
    return np.diff([*(1 << np.arange(10)) - 1, d]).astype(np.float64)


def _shape(one: str, other: str) -> Callable[[Evidence], Finding]:
    def finding(rows: Evidence) -> Finding:
        first, second = Bias(rows, one), Bias(rows, other)
        same = float(np.corrcoef(first.octaves(first.bias), second.octaves(second.bias))[0, 1])
        return graded([same > 0.8], f"correlation of the two over octaves of rank: {same:.3f}")

    return finding


def _factor(dataset: str, about: float) -> Callable[[Evidence], Finding]:
    def finding(rows: Evidence) -> Finding:
        gain = rows.values(FULL, "base", dataset) / rows.values(FULL, "norm-sub", dataset)
        return graded(
            (gain >= about / 2) & (gain <= about * 2),
            f"Base / Norm-Sub: {number(float(gain[0]))} at ε = 0.2 to {number(float(gain[-1]))} at ε = 4",
        )

    return finding


opening, setup = partial(claim, "V"), partial(claim, "V-A Experimental Setup")
opening("for full-domain query, Base-Cut performs the best", (FULL,), "lowest MSE")(best([FULL], "base-cut"))
opening("for set-value query, PowerNS performs the best", RANDOM, "lowest MSE")(best(RANDOM, "power-ns"))
opening("for high-frequency-value query, Norm performs the best", (TOP,), "lowest MSE")(best([TOP], "norm"))


@setup("The standard deviation is typically very small", ERRORS, "below 25 % of the mean", ("zipf", "emoji"))
def _small(rows: Evidence) -> Finding:
    deviations = np.array(
        [
            row.deviation / row.value
            for figure in ERRORS
            for dataset in rows.datasets(figure)
            for method in METHODS
            for row in rows.curve(figure, dataset, method)
        ]
    )
    top = np.median(
        [row.deviation / row.value for name in rows.datasets(TOP) for row in rows.curve(TOP, name, "base")]
    )
    return graded(
        deviations < 0.25, f"deviation / mean: median {np.median(deviations):.2f}, for Base's top k {top:.2f}"
    )


bias = partial(claim, "V-B Bias-variance Evaluation")


@bias("Base and Norm are unbiased", COUNTS, "no value's bias reaches 5 standard errors")
def _unbiased(rows: Evidence) -> Finding:
    worst = np.array([np.abs(Bias(rows, method).z()).max() for method in ("base", "norm")])
    return graded(worst < 5.0, f"largest of {len(zipf().histogram):,} biases: {span(worst)} standard errors")


@bias("Base-Pos introduces systematic positive bias", COUNTS, "sum above 0, no bias below −5 standard errors")
def _positive_bias(rows: Evidence) -> Finding:
    z = Bias(rows, "base-pos").z()
    total = rows.curve("bias", "zipf", "base-pos", "sum")[0].value
    return graded(
        [bool(total > 0.0 and z.min() > -5.0)],
        f"sum {number(total)}; above 0 by 5 standard errors at {100 * float((z > 5.0).mean()):.0f} % of the values, "
        f"below at no value"
        if z.min() > -5.0
        else f"sum {number(total)}; below 0 by 5 standard errors at some value",
    )


@bias(
    "Base-Cut gives unbiased estimations for the first few most frequent values",
    COUNTS,
    "within 5 standard errors where the count exceeds T + 4σ",
)
def _cut_unbiased_at_top(rows: Evidence) -> Finding:
    of = Bias(rows, "base-cut")
    z = np.abs(of.z()[: of.top])
    return graded(
        [bool(z.max() < 5.0)], f"the first {of.top}: at most {number(float(z.max()))} standard errors"
    )


@bias(
    "low-frequency values, whose estimates are unlikely to be above T",
    COUNTS,
    "chance below 5 % in the less frequent half",
)
def _cut_low_below_threshold(rows: Evidence) -> Finding:
    of = Bias(rows, "base-cut")
    chance = (of.bias + of.truth)[len(of.truth) // 2 :] / of.threshold
    return graded(
        [bool(chance.max() < 0.05)],
        f"less frequent half: mean estimate / T, a bound of the chance, at most {100 * float(chance.max()):.2g} %",
    )


@bias(
    "At some point, the two effects cancel out …, leading to unbiased estimations",
    COUNTS,
    "bias below 0 at ranks 16 to 31, the last 64 values within 4 standard errors of 0",
)
def _cut_cancels(rows: Evidence) -> Finding:
    of = Bias(rows, "base-cut")
    middle, last = of.octaves(of.bias)[4], of.bias[-64:]
    error = float(np.sqrt((of.error[-64:] ** 2).sum())) / 64
    return graded(
        [bool(middle < 0.0 and abs(last.mean()) < 4.0 * error)],
        f"ranks 16 to 31: {number(float(middle))}; the last 64: {last.mean():.1f} ± {error:.1f}",
    )


@bias("the threshold in Norm-Cut is typically smaller [than T]", (FULL,), "lower mean threshold")
def _threshold(rows: Evidence) -> Finding:
    parts = [(rows.values(FULL, method, case="threshold")) for method in ("norm-cut", "base-cut")]
    return graded(
        parts[0] < parts[1], f"lowest kept frequency, Norm-Cut / Base-Cut: {span(parts[0] / parts[1])}"
    )


@bias(
    "Norm-Sub: … high-frequency values … subtraction by a same amount",
    COUNTS,
    "equal bias below 0, within 5 standard errors",
)
def _same_subtracted(rows: Evidence) -> Finding:
    of = Bias(rows, "norm-sub")
    top, error = of.bias[: of.top], of.error[: of.top]
    apart = np.abs(top - top.mean()) / error
    return graded(
        [bool(apart.max() < 5.0 and top.max() < 0.0)],
        f"bias of the first {of.top}: {span(top)}, {number(float(apart.max()))} standard errors apart at most",
    )


@bias("We see an increasing line for Norm-Sub", COUNTS, "means over octaves of rank increase")
def _increasing(rows: Evidence) -> Finding:
    of = Bias(rows, "norm-sub")
    means, error = of.octaves(of.bias), np.sqrt(of.octaves(of.error**2) / _octave_sizes(len(of.bias)))
    steps = np.diff(means)
    slack = 4.0 * np.sqrt(error[1:] ** 2 + error[:-1] ** 2)
    return graded(
        steps > -slack, f"from {number(float(means[0]))} to {number(float(means[-1]))} over octaves of rank"
    )


@bias(
    "Power changes little to the top estimations; but more to the low ones",
    COUNTS,
    "|bias| below 5 % of the count at ranks 1 to 7, above 10 % at a rank above 7",
)
def _power_changes(rows: Evidence) -> Finding:
    of = Bias(rows, "power")
    relative = np.abs(of.octaves(of.bias) / of.octaves(of.truth))
    return graded(
        [bool(relative[:3].max() < 0.05 and relative[3:].max() > 0.1)],
        f"|bias| / count: ranks 1 to 7 {span(100 * relative[:3], ' %')}, ranks above 7 up to "
        f"{number(100 * float(relative[3:].max()))} %",
    )


bias("[Power:] a similar shape as Norm-Cut", COUNTS, "correlation above 0.8")(_shape("power", "norm-cut"))
bias("The shape of PowerNS is close to Power", COUNTS, "correlation above 0.8")(_shape("power-ns", "power"))


@bias(
    "PowerNS applies Norm-Sub, which subtract some amount", COUNTS, "PowerNS's mean below Power's at the top"
)
def _power_ns_subtracts(rows: Evidence) -> Finding:
    total = rows.curve("bias", "zipf", "power", "sum")[0].value
    before, after = Bias(rows, "power"), Bias(rows, "power-ns")
    change = (after.bias - before.bias)[: before.top]
    return graded(
        [bool(change.max() < 0.0)],
        f"error of Power's sum {number(total)}; Norm-Sub changes the first {before.top} by {span(change)}",
    )


@bias("the variance is similar for all the values in Base and Norm", COUNTS, "within 25 % of its mean")
def _variance_flat(rows: Evidence) -> Finding:
    means = [of.octaves(of.variance) / of.variance.mean() for of in (Bias(rows, "base"), Bias(rows, "norm"))]
    return graded((np.array(means) < SIMILAR).ravel(), f"variance / its mean, octaves of rank: {span(means)}")


@bias("Norm being slightly better (smaller) than Base", COUNTS, "mean variance 0 to 10 % smaller")
def norm_smaller(rows: Evidence) -> Finding:
    """Tests that Norm's mean variance is up to 10 % lower than Base's."""
    quotient = float(Bias(rows, "norm").variance.mean() / Bias(rows, "base").variance.mean())
    return graded([0.9 < quotient < 1.0], f"mean variance, Norm / Base: {quotient:.4f} (expected 1 − 1/d)")


@bias(
    "For all other methods, the variance drops with the rank",
    COUNTS,
    "no octave of ranks more than 5 % above the previous octave",
)
def _variance_drops(rows: Evidence) -> Finding:
    methods = [method for method in METHODS if method not in ("base", "norm")]
    octaves = np.stack([(of := Bias(rows, method)).octaves(of.variance) for method in methods])
    falls = octaves[:, 1:] < 1.05 * octaves[:, :-1]
    rising = ", ".join(NAMES[method] for method, row in zip(methods, falls, strict=True) if not row.all())
    ends = f"last octave / first: {span(octaves[:, -1] / octaves[:, 0])}"
    return graded(falls.all(axis=1), f"{ends}; not falling throughout: {rising}" if rising else ends)


@bias(
    "for low-frequency values, their estimates are mostly zeros",
    COUNTS,
    "more than half of the estimates in the less frequent half",
)
def _zeros(rows: Evidence) -> Finding:
    methods = [method for method in METHODS if method not in ("base", "norm")]
    shares = np.array([rows.values("distribution", method, "zipf", "zeros")[0] for method in methods])
    few = ", ".join(
        f"{NAMES[method]} {100 * share:.0f} %"
        for method, share in zip(methods, shares, strict=True)
        if share <= 0.5
    )
    return graded(shares > 0.5, f"zeros in that half: up to {100 * shares.max():.0f} %; at most 50 %: {few}")


full_domain = partial(claim, "V-C Full-domain Evaluation")


@full_domain(
    "The MSE is composed of the (square of) bias … and variance", (FULL, *COUNTS), "within 4 standard errors"
)
def _composed(rows: Evidence) -> Finding:
    apart = []
    for method, row in rows.at(FULL, "zipf", 1.0).items():
        of = Bias(rows, method)
        expected = float((of.bias**2 - of.error**2 + of.variance).mean()) / zipf().users ** 2
        apart.append((row.value - expected) / (row.deviation / row.repeats**0.5))
    return graded(np.abs(apart) < 4.0, f"MSE minus (bias² + variance), ε = 1: {span(apart)} standard errors")


full_domain("Base performs very close to Norm", (FULL,), "within 2 %")(
    ratio([FULL], "norm", "base", 1 / ALIKE, ALIKE)
)


@full_domain(
    "Base-Pos (… equivalent to Post-Pos …) … around half that of Base", (FULL,), "0.4 to 0.6 of Base's"
)
def _half(rows: Evidence) -> Finding:
    quotient = rows.values(FULL, "base-pos") / rows.values(FULL, "base")
    same = np.array_equal(rows.values(FULL, "base-pos"), rows.values(FULL, "post-pos"))
    return graded(
        (quotient > 0.4) & (quotient < 0.6) & same,
        f"Base-Pos / Base: {span(quotient)}; Post-Pos {'equals' if same else 'differs from'} Base-Pos",
    )


full_domain("Norm-Sub … by about a factor of 10 … in the Zipfs", (FULL,), "5 to 20", ("zipf",))(
    _factor("zipf", 10.0)
)
full_domain("[…] and 100 in the … Emoji dataset", (FULL,), "50 to 200", ("emoji",))(_factor("emoji", 100.0))


@full_domain("[Norm-Mul:] the MSE decreases much slower than other methods", (FULL,), "smallest fall over ε")
def _slow(rows: Evidence) -> Finding:
    slowest, parts = [], []
    for dataset in rows.datasets(FULL):
        table = rows.table(FULL, dataset)
        falls = dict(zip(METHODS, table[:, 0] / table[:, -1], strict=True))
        least = min(falls, key=lambda method: falls[method])
        slowest.append(least == "norm-mul")
        other = min(fall for method, fall in falls.items() if method != "norm-mul")
        parts.append(
            f"{dataset.capitalize()} {number(falls['norm-mul'])} ×, smallest of the others {number(other)} ×"
        )
    return graded(slowest, f"fall from ε = 0.2 to 4: {'; '.join(parts)}")


@full_domain(
    "[Norm-Mul:] The higher the estimate, the greater the adjustment",
    COUNTS,
    "|bias| falls with rank at the top",
)
def _adjustment(rows: Evidence) -> Finding:
    of = Bias(rows, "norm-mul")
    top = of.bias[: of.top]
    relative = 100 * top / of.truth[: of.top]
    return graded(
        [bool((np.diff(np.abs(top)) < 0.0).all())],
        f"reduction of the first {of.top}: {span(np.abs(top))} counts, {span(-relative, ' %')}",
    )


full_domain("Norm-Sub and MLE-Apx perform almost exactly the same", (FULL,), "within 2 %")(
    ratio([FULL], "mle-apx", "norm-sub", 1 / ALIKE, ALIKE)
)


@full_domain(
    "Norm-Sub, MLE-Apx, Power, PowerNS, and Base-Cut perform very similarly", (FULL,), "within a factor of 2"
)
def _very_similar(rows: Evidence) -> Finding:
    methods = ("norm-sub", "mle-apx", "power", "power-ns", "base-cut")
    table = np.stack([rows.values(FULL, method) for method in methods])
    apart = table.max(axis=0) / table.min(axis=0)
    return graded(apart <= 2.0, f"largest / lowest of the five: {span(apart)}")


full_domain("In these two datasets, PowerNS performs the best", (FULL,), "lowest MSE")(
    best([FULL], "power-ns")
)


@full_domain(
    "PowerNS works well when the distribution is close to Power-Law",
    ("eleventh",),
    "better than Norm-Sub on Zipf",
    ("zipf",),
)
def _power_law(rows: Evidence) -> Finding:
    quotients = {
        dataset: rows.values("eleventh", "power-ns", dataset) / rows.values("eleventh", "norm-sub", dataset)
        for dataset in rows.datasets("eleventh")
    }
    named = "; ".join(f"{dataset.capitalize()} {span(values)}" for dataset, values in quotients.items())
    return graded(quotients["zipf"] < 1.0, f"root mean square error, PowerNS / Norm-Sub: {named}")


@full_domain(
    "the dominating source of errors comes from … frequencies close or equal to 0",
    COUNTS,
    "more than 90 % of Base's error at frequencies below σ",
)
def _near_zero(rows: Evidence) -> Finding:
    of = Bias(rows, "base")
    error = of.variance + of.bias**2
    share = float(error[of.truth < of.sigma].sum() / error.sum())
    return graded(
        [share > 0.9], f"{100 * share:.0f} % of Base's error is at frequencies below σ (ε = 1, Zipf)"
    )


@full_domain("the MSE does not depend on the distribution", (FULL,), "Base's within 5 % of the formula")
def _no_distribution(rows: Evidence) -> Finding:
    quotients = []
    for dataset in rows.datasets(FULL):
        data = DATASETS[dataset]()
        for row in rows.curve(FULL, dataset, "base"):
            oracle = olh(f"{row.x:.1f}", len(data.histogram))
            p, q, d = oracle.p, oracle.q, oracle.domain_size
            expected = (q * (1 - q) / (p - q) ** 2 + (1 - p - q) / (d * (p - q))) / data.users
            quotients.append(row.value / float(expected))
    apart = np.abs(np.array(quotients) - 1.0)
    return graded(apart < 0.05, f"Base's MSE / the formula: {span(quotients)}")


@full_domain("[n':] Base and Norm are two straight lines with the slope of 1", ("users",), "within 2 %")
def _slope_one(rows: Evidence) -> Finding:
    n = rows.x("users", "zipf")
    slopes = [float(n @ rows.values("users", method, "zipf") / (n @ n)) for method in ("base", "norm")]
    return graded(np.abs(np.array(slopes) - 1.0) < 0.02, f"slopes {slopes[0]:.3f} and {slopes[1]:.3f}")


@full_domain(
    "[n':] Three pairs …: Base and Norm, Base-Pos and Post-Pos, Norm-Sub and MLE-Apx",
    ("users",),
    "within 2 %",
)
def _pairs(rows: Evidence) -> Finding:
    pairs = (("norm", "base"), ("post-pos", "base-pos"), ("mle-apx", "norm-sub"))
    quotients = np.stack([rows.values("users", one) / rows.values("users", other) for one, other in pairs])
    return graded((np.abs(quotients - 1.0) < ALIKE - 1.0).ravel(), f"n' / n' of the other: {span(quotients)}")


@full_domain("[n':] Norm-Mul grows even slower than Base", ("users",), "smaller growth over all n")
def _mul_grows_slower(rows: Evidence) -> Finding:
    grown = [np.ptp(rows.values("users", method, "zipf")) for method in ("norm-mul", "base")]
    n = float(np.ptp(rows.x("users", "zipf")))
    return graded(
        [bool(grown[0] < grown[1])],
        f"growth of n' per user: Norm-Mul {number(grown[0] / n)}, Base {number(grown[1] / n)}",
    )


@full_domain(
    "[n':] the other methods follow the similar trend of the full-domain MSE",
    ("users", FULL),
    "rank correlation above 0.95",
)
def _trend(rows: Evidence) -> Finding:
    worth = [row.value for row in rows.at("users", "zipf", 1e6).values()]
    errors = [row.value for row in rows.at(FULL, "zipf", 1.0).values()]
    same = -float(spearmanr(worth, errors).statistic)
    return graded([same > 0.95], f"rank correlation with the MSE at ε = 1, n = 1,000,000: {same:.3f}")


@full_domain("[n':] PowerNS gives the best performance", ("users",), "largest n'")
def _best_worth(rows: Evidence) -> Finding:
    table = rows.table("users", "zipf")
    of = table[[*METHODS].index("power-ns")] / table.max(axis=0)
    return graded(of * TIE >= 1.0, f"PowerNS's n' / largest n': {span(of)}")


@full_domain("[PowerNS] saves around 90% of users", ("users",), "85 % to 95 %")
def _saved(rows: Evidence) -> Finding:
    saved = 100.0 * (1.0 - rows.x("users", "zipf") / rows.values("users", "power-ns", "zipf"))
    return graded((saved > 85.0) & (saved < 95.0), f"1 − n/n': {span(saved, ' %')}")


sets = partial(claim, "V-D Set-value Evaluation")


@sets(
    "the error MSE of set-value queries is greater than that for the full-domain",
    (FULL, *RANDOM),
    "greater for every method and ρ, ε = 1",
)
def _sets_harder(rows: Evidence) -> Finding:
    quotients = []
    for dataset in rows.datasets(SETS):
        single = np.array([row.value for row in rows.at(FULL, dataset, 1.0).values()])
        quotients += [(rows.table(figure, dataset) / single[:, None]).ravel() for figure in (SETS, SMALL)]
    together = np.concatenate(quotients)
    return graded(together > 1.0, f"MSE of sets / MSE of single values: {span(together)}")


@sets(
    "approaches that exploits the summing-to-1 requirement … perform well", (SETS,), "each better than Base"
)
def _well(rows: Evidence) -> Finding:
    quotients = np.stack([rows.values(SETS, method) / rows.values(SETS, "base") for method in SUM_TO_ONE])
    bad = [NAMES[method] for method, row in zip(SUM_TO_ONE, quotients, strict=True) if (row >= 1.0).any()]
    at_end = [
        rows.at(SETS, dataset, 90.0)[method].value / rows.at(SETS, dataset, 90.0)["base"].value
        for dataset in rows.datasets(SETS)
        for method in SUM_TO_ONE
    ]
    worse = f"; not always better: {', '.join(bad)}" if bad else ""
    return graded(
        (quotients < 1.0).ravel(), f"MSE / MSE of Base: {span(quotients)}, at ρ = 90 {span(at_end)}{worse}"
    )


@sets("their MSE is symmetric with ρ = 50", (SETS,), "within 25 %")
def _symmetric(rows: Evidence) -> Finding:
    quotients = []
    for dataset in rows.datasets(SETS):
        for method in SUM_TO_ONE:
            by_size = {row.x: row.value for row in rows.curve(SETS, dataset, method)}
            quotients += [
                by_size[x] / by_size[100.0 - x] for x in by_size if x < 50.0 and 100.0 - x in by_size
            ]
    return graded(
        (np.array(quotients) < SIMILAR) & (np.array(quotients) > 1 / SIMILAR),
        f"MSE at ρ / MSE at 100 − ρ: {span(quotients)}",
    )


@sets(
    "ρ = 90, … PowerNS, outperforms any of the non-norm … by at least 2 orders",
    (SETS,),
    "best of the methods with sum 1, and 100 × better than the others",
)
def _two_orders(rows: Evidence) -> Finding:
    gains, first = [], []
    for dataset in rows.datasets(SETS):
        at_end = {method: row.value for method, row in rows.at(SETS, dataset, 90.0).items()}
        gains.append(min(at_end[method] for method in OTHERS) / at_end["power-ns"])
        first.append(at_end["power-ns"] <= TIE * min(at_end[method] for method in SUM_TO_ONE))
    named = ", ".join(
        f"{name.capitalize()} {number(gain)}" for name, gain in zip(rows.datasets(SETS), gains, strict=True)
    )
    return graded(
        (np.array(gains) >= 100.0) & np.array(first), f"best of the others / PowerNS at ρ = 90: {named}"
    )


sets("the MSE for Base-Pos is higher than other methods", (SETS,), "largest MSE")(
    best([SETS], "base-pos", worst=True)
)
sets("Post-Pos is slightly better than Base", (SETS,), "lower MSE")(lower([SETS], "post-pos", "base"))
sets("Base-Cut also outperforms Base", (SETS,), "lower MSE")(lower([SETS], "base-cut", "base"))


@sets(
    "[Base-Cut:] more likely to make the summation … close to one",
    COUNTS,
    "Base-Cut's sum is closer to 1 than the sum of Base",
)
def _sum_close_to_one(rows: Evidence) -> Finding:
    off = []
    for method in ("base-cut", "base"):
        total = rows.curve("bias", "zipf", method, "sum")[0]
        off.append(float(np.hypot(total.value, total.deviation)) / zipf().users)
    return graded(
        [off[0] < off[1]], f"sum minus 1, root mean square, Zipf: Base-Cut {off[0]:.3f}, Base {off[1]:.3f}"
    )


@sets(
    "Power only converts negative estimations to be positive, introducing … bias",
    COUNTS,
    "bias of the sum above 5 standard errors",
)
def _power_biased(rows: Evidence) -> Finding:
    total = rows.curve("bias", "zipf", "power", "sum")[0]
    error = total.deviation / total.repeats**0.5
    down = ": positive estimates fall more than negative ones rise" if total.value < 0.0 else ""
    return graded(
        [total.value > 5.0 * error], f"bias of the sum {total.value:,.0f} ± {error:,.0f} counts{down}"
    )


sets("PowerNS … better utility than all other methods", (SETS,), "lowest MSE")(best([SETS], "power-ns"))


@sets("[ρ ≤ 10:] the errors of all methods increase with ρ", (SMALL,), "larger MSE at each step")
def _increase(rows: Evidence) -> Finding:
    steps = np.concatenate(
        [
            (table[:, 1:] / table[:, :-1]).ravel()
            for table in (rows.table(SMALL, name) for name in rows.datasets(SMALL))
        ]
    )
    return graded(steps > 1.0, f"factor from one ρ to the next: {span(steps)}")


@sets(
    "When ρ becomes small, the performance … approaches to that of full-domain",
    (SMALL, FULL),
    "rank correlation at ρ = 1 at least 0.9, and not below ρ = 10",
)
def _approaches(rows: Evidence) -> Finding:
    same, parts = [], []
    for dataset in rows.datasets(SMALL):
        single = [row.value for row in rows.at(FULL, dataset, 1.0).values()]
        table = rows.table(SMALL, dataset)
        small, large = (float(spearmanr(table[:, column], single).statistic) for column in (0, -1))
        same.append(small >= 0.9 and small >= large)
        parts.append(f"{dataset.capitalize()} {small:.2f} at ρ = 1, {large:.2f} at 10")
    return graded(same, f"rank correlation with single values: {'; '.join(parts)}")


@sets("Norm-Cut is better than Base-Cut especially when ρ ≥ 2", (SMALL,), "lower MSE from ρ = 2")
def _norm_cut_wins(rows: Evidence) -> Finding:
    quotient = np.concatenate(
        [
            (rows.values(SMALL, "norm-cut", dataset) / rows.values(SMALL, "base-cut", dataset))[
                rows.x(SMALL, dataset) >= 2.0
            ]
            for dataset in rows.datasets(SMALL)
        ]
    )
    return graded(quotient < 1.0, f"Norm-Cut / Base-Cut, ρ ≥ 2: {span(quotient)}")


sets(
    "norm-based methods should perform better …. But Norm-Mul does not",
    (SMALL,),
    "Norm-Mul's MSE above the MSE of Base",
)(lower([SMALL], "base", "norm-mul"))


@sets(
    "enforcing sum-to-one is not enough. … perform significantly different", (SMALL,), "a factor of 2 apart"
)
def _differ(rows: Evidence) -> Finding:
    table = np.stack([rows.values(SMALL, method) for method in SUM_TO_ONE])
    apart = table.max(axis=0) / table.min(axis=0)
    return graded(apart > 2.0, f"worst / best of the methods with sum 1: {span(apart)}")


sets("[fixed sets:] Post-Pos works best in the left sub-figure", (CASE,), "lowest MSE of its panel")(
    best([CASE], "post-pos", ("base", "base-pos", "post-pos", "norm", "norm-mul", "norm-sub"))
)


@sets("Norm-Cut … performs even better, especially when ε < 3", (CASE,), "lower MSE than Post-Pos for ε < 3")
def _norm_cut_in_cases(rows: Evidence) -> Finding:
    low = rows.x(CASE, "emoji") < 3.0
    quotient = rows.values(CASE, "norm-cut", "emoji") / rows.values(CASE, "post-pos", "emoji")
    return graded(
        quotient[low] < 1.0,
        f"Norm-Cut / Post-Pos: {span(quotient[low])} for ε < 3, {span(quotient[~low])} above",
    )


@sets("the set-queries contain values that are infrequent", (CASE,), "most values of a set below σ")
def _infrequent(rows: Evidence) -> Finding:
    data = emoji()
    oracle = olh("1", len(data.histogram))
    p, q = oracle.p, oracle.q
    sigma = float(q * (1 - q) / (data.users * (p - q) ** 2)) ** 0.5
    rare = [float((data.frequencies[members] < sigma).mean()) for members in data.subgroups.values()]
    return graded(
        np.array(rare) > 0.5,
        f"sets with more than half of their values below σ at ε = 1; mean share {np.mean(rare):.2f}",
    )


@sets(
    "the optimal method in fixed set-values … is different from random set-values",
    (CASE, SETS),
    "different best methods at ε = 1",
)
def _optimum_differs(rows: Evidence) -> Finding:
    case = min((row.value, method) for method, row in rows.at(CASE, "emoji", 1.0).items())[1]
    table = rows.table(SETS, "emoji")
    random = {[*METHODS][index] for index in table.argmin(axis=0)}
    named = ", ".join(NAMES[method] for method in METHODS if method in random)
    return graded([case not in random], f"subgroups at ε = 1: {NAMES[case]}; random sets: {named}")


@sets(
    "[Norm-Sub and PowerNS] perform well on full-domain and random set-value",
    (FULL, *RANDOM),
    "within a factor of 2 of the best, emoji",
    ("emoji",),
)
def _both_well(rows: Evidence) -> Finding:
    quotients = []
    for figure in (FULL, SETS, SMALL):
        least = rows.table(figure, "emoji").min(axis=0)
        quotients += [rows.values(figure, method, "emoji") / least for method in ("norm-sub", "power-ns")]
    return graded(np.concatenate(quotients) <= 2.0, f"MSE / best, emoji: {span(np.concatenate(quotients))}")


@sets(
    "processed by Norm-Sub, the optimal method can be find quite accurately",
    ("synthetic",),
    "the best method by the mean curves loses less than 10 %",
)
def _found(rows: Evidence) -> Finding:
    real = rows.table("synthetic", "emoji", "real")
    lowest = rows.table("synthetic", "emoji", "norm-sub").argmin(axis=0)
    loss = real[lowest, np.arange(len(lowest))] / real.min(axis=0)
    picked = rows.table("synthetic", "emoji", "picked on norm-sub")
    single = (picked * real).sum(axis=0) / real.min(axis=0)
    return graded(
        loss < 1.1,
        f"real MSE of the pick / real MSE of the best: by single repeats {span(single)} on average, below 1.1 in "
        f"{np.count_nonzero(single < 1.1)} of {single.size} cases; by the mean curves {span(loss)}",
    )


@sets("if PowerNS is used, PowerNS will be selected", ("synthetic",), "best by the mean curves")
def _power_ns_picked(rows: Evidence) -> Finding:
    errors = rows.table("synthetic", "emoji", "power-ns")
    excess = errors[[*METHODS].index("power-ns")] / errors.min(axis=0)
    share = rows.values("synthetic", "power-ns", "emoji", "picked on power-ns")
    return graded(
        excess == 1.0,
        f"picked in {span(100 * share, ' %')} of single repeats; "
        f"PowerNS / best by the mean curves: {span(excess)}",
    )


frequent = partial(claim, "V-E Frequent-value Evaluation")


@frequent(
    "Base, Base-Pos, Post-Pos, and Norm perform consistently well for different k",
    (TOP,),
    "within 10 % of the best",
)
def _consistently_well(rows: Evidence) -> Finding:
    quotients = np.concatenate(
        [
            rows.values(TOP, method) / rows.table(TOP).min(axis=0)
            for method in ("base", "base-pos", "post-pos", "norm")
        ]
    )
    return graded(quotients <= 1.1, f"MSE / best: {span(quotients)}")


frequent("[Base-Pos and Post-Pos] do nothing to the top values", (TOP,), "MSE within 0.1 % of Base's")(
    ratio([TOP], "base-pos", "base", 0.999, 1.001)
)


@frequent("Norm-Mul performs at least 10× worse than any other methods", (TOP,), "10 × the second worst")
def _mul_worst(rows: Evidence) -> Finding:
    others = np.stack([rows.values(TOP, method) for method in METHODS if method != "norm-mul"]).max(axis=0)
    quotient = rows.values(TOP, "norm-mul") / others
    return graded(quotient >= 10.0, f"Norm-Mul / worst of the others: {span(quotient)}")


@frequent("Norm-Sub performs worse than Base, but better than Norm-Mul", (TOP,), "in this order")
def _sub_between(rows: Evidence) -> Finding:
    base, sub, mul = (rows.values(TOP, method) for method in ("base", "norm-sub", "norm-mul"))
    return graded(
        (base < sub) & (sub < mul),
        f"Norm-Sub / Base: {span(sub / base)}, Norm-Mul / Norm-Sub: {span(mul / sub)}",
    )


frequent("MLE-Apx … performs the same as Norm-Sub", (TOP,), "within 2 %")(
    ratio([TOP], "mle-apx", "norm-sub", 1 / ALIKE, ALIKE)
)


@frequent("[Base and Norm-Sub] have consistent MSE for different k", (TOP,), "largest / lowest below 1.5")
def _consistent(rows: Evidence) -> Finding:
    apart = [
        float(values.max() / values.min())
        for dataset in rows.datasets(TOP)
        for method in ("base", "norm-sub")
        for values in [rows.values(TOP, method, dataset)]
    ]
    return graded(
        np.array(apart) < 1.5, f"largest / lowest over k, Base and Norm-Sub, each data set: {span(apart)}"
    )


@frequent(
    "Base-Cut, Norm-Cut, Power, and PowerNS, all have MSE that grows with k",
    (TOP,),
    "growth by 25 % from k = 2 to 32, relative to Base",
)
def _grows(rows: Evidence) -> Finding:
    methods = ("base-cut", "norm-cut", "power", "power-ns")
    growth = {}
    for dataset in rows.datasets(TOP):
        for method in methods:
            relative = rows.values(TOP, method, dataset) / rows.values(TOP, "base", dataset)
            growth[f"{NAMES[method]} on {dataset.capitalize()}"] = float(relative[-1] / relative[0])
    flat = ", ".join(name for name, grown in growth.items() if grown < SIMILAR)
    values = np.array([*growth.values()])
    return graded(
        values >= SIMILAR,
        f"MSE / MSE of Base, k = 32 over k = 2: {span(values)}" + (f"; below 1.25: {flat}" if flat else ""),
    )


@frequent("at ε = 1, around 10 values can be reliably estimated", (TOP,), "5 to 20")
def _reliable(rows: Evidence) -> Finding:
    reach = {}
    for dataset in rows.datasets(TOP):
        close = rows.values(TOP, "base-cut", dataset) <= 1.1 * rows.values(TOP, "base", dataset)
        first_bad = len(close) if close.all() else int(np.argmin(close))
        reach[dataset] = rows.x(TOP, dataset)[max(first_bad - 1, 0)] if first_bad else 0.0
    named = ", ".join(f"{dataset.capitalize()} {k:.0f}" for dataset, k in reach.items())
    found = np.array([*reach.values()])
    return graded((found >= 5.0) & (found <= 20.0), f"Base-Cut is within 10 % of Base up to k = {named}")


frequent("Norm-Cut is better than Base-Cut", (TOP,), "MSE at most 1 % higher")(
    ratio([TOP], "norm-cut", "base-cut", 0.0, TIE)
)
frequent("the performances of Power and PowerNS are similar", (TOP,), "within 25 %")(
    ratio([TOP], "power-ns", "power", 1 / SIMILAR, SIMILAR)
)


@frequent("[Power, PowerNS] are worse than Base-Cut, especially when k > 10", (TOP,), "higher MSE for k > 10")
def _worse_beyond(rows: Evidence) -> Finding:
    quotients = {}
    for dataset in rows.datasets(TOP):
        beyond = rows.x(TOP, dataset) > 10.0
        base_cut = rows.values(TOP, "base-cut", dataset)[beyond]
        quotients[dataset] = np.stack(
            [rows.values(TOP, method, dataset)[beyond] / base_cut for method in ("power", "power-ns")]
        )
    named = ", ".join(f"{dataset.capitalize()} {span(values)}" for dataset, values in quotients.items())
    return graded(
        np.concatenate([values.ravel() for values in quotients.values()]) > 1.0,
        f"MSE / MSE of Base-Cut, k > 10: {named}",
    )


discussion = partial(claim, "V-F Discussion")
discussion(
    "Norm-Sub and MLE-Apx perform similarly", ERRORS, "within 25 % in all MSE figures", ("zipf", "emoji")
)(ratio(ERRORS, "mle-apx", "norm-sub", 1 / SIMILAR, SIMILAR))
discussion("Base and Norm performs similarly", ERRORS, "within 25 % in all MSE figures", ("zipf", "emoji"))(
    ratio(ERRORS, "norm", "base", 1 / SIMILAR, SIMILAR)
)
discussion("PowerNS improves over the approximate MLE (i.e., Norm-Sub …)", (FULL, *RANDOM), "lower MSE")(
    lower((FULL, *RANDOM), "power-ns", "norm-sub")
)
discussion(
    "Norm reduces variance by utilizing … sum up to 1", COUNTS, "mean variance of single values below Base"
)(norm_smaller)


@discussion("[Base and Norm] do not change any value dramatically", COUNTS, "change below 10 % of σ")
def _norm_gentle(rows: Evidence) -> Finding:
    total = rows.curve("bias", "zipf", "base", "sum")[0]
    shift = total.deviation / len(zipf().histogram) / Bias(rows, "base").sigma
    return graded([shift < 0.1], f"Norm changes a value by {number(100 * shift)} % of σ (root mean square)")


discussion("converting low estimates to 0 benefit the utility", (FULL,), "Base-Cut's MSE below Base")(
    lower([FULL], "base-cut", "base")
)
