"""Base class of frequency oracles.

Each protocol is "pure": a report supports a set of values. The set contains the user's value with probability p, and
any other value with probability q < p. The server's state is a vector of integers that is linear in the reports, so
states can be added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ldp import arguments, sampling, wire
from ldp.oracles.described import Described

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ldp.estimate import Estimate

_PLACES = 5  # number of malformed reports that an error lists


class Oracle(Described, ABC):
    """A frequency oracle: Ψ perturbs on the device, Φ counts on the server.

    Attributes:
        E: the rational number that determines p, q and all random draws: ⌊e^ε·2⁶⁴⌋/2⁶⁴, just below e^ε. In `SUE`, E is
            a square (see there). In explicit channels, E is exactly e^ε.
        p: probability that a report supports its user's value.
        q: probability that a report supports any other value.
        fields: names and exclusive upper bounds of a report's integers, in wire order.
        length: number of integers in the single field of a vector report (bits or indices); None for other reports.
        own_bits: whether each value has an independent bit, so that one value is a yes/no question.
    """

    E: Fraction
    p: Fraction
    q: Fraction
    fields: Mapping[str, int]
    length: int | None = None
    own_bits: ClassVar[bool] = False

    def __init__(self, epsilon: str | int | Fraction, domain_size: int) -> None:
        self.epsilon = exact = sampling.parse_epsilon(epsilon)
        self.E = sampling.exp_below(exact)
        self.domain_size = arguments.as_integer("domain_size", domain_size, 1, arguments.MAX_DOMAIN)

    # Ψ, on the device

    @abstractmethod
    def perturb_one(self, value: int) -> tuple[int, ...]:
        """Perturbs one value into the integers of a report.

        The probabilities are exact, and randomness comes from the system's CSPRNG. The method does not need numpy. Each
        call draws a fresh report and spends ε again.

        Raises:
            TypeError: a value that is not an int.
            ValueError: a value outside 0..d−1.
        """

    def pack(self, report: tuple[int, ...]) -> bytes:
        """Encodes a report of `perturb_one` in the binary format, without numpy.

        Raises:
            ValueError: a wrong number of integers.
            OverflowError: an integer that exceeds its field.

        Example:
            >>> import ldp
            >>> ldp.OLH("1", domain_size=10).pack((258, 3)).hex()
            '0201000003'
        """
        bounds = [*self.fields.values()] * (1 if self.length is None else self.length)
        return b"".join(
            number.to_bytes(wire.bytes_below(bound), "little")
            for number, bound in zip(report, bounds, strict=True)
        )

    def memoise(self, value: int) -> bytes:
        """Draws the noise that a client stores for a value, without numpy.

        It is a report, and RAPPOR's permanent response. Raises as `perturb_one` does.
        """
        return self.pack(self.perturb_one(value))

    def recall(self, memoised: bytes) -> bytes:
        """Returns a report from the result of `memoise`, in the binary format."""
        return memoised

    def perturb(
        self, values: npt.ArrayLike, *, rng: np.random.Generator | None = None
    ) -> npt.NDArray[np.void]:
        """Perturbs each value into one report (Ψ); each call spends ε again.

        Args:
            values: (n,) integers, 0 ≤ v < d.
            rng: a numpy generator, for simulation only. The draws are then predictable, and probabilities may be
                rounded to floats. Without `rng`, probabilities are exact and randomness comes from the system's CSPRNG.

        Returns:
            (n,) array of `report_dtype`.

        Raises:
            TypeError: values that are not a vector of integers, or an `rng` that is not a numpy generator.
            ValueError: values outside the domain, or an array that is not one-dimensional.
        """
        import numpy as np

        if rng is not None:
            arguments.check_generator(rng, "a numpy Generator or None")
        checked = arguments.as_values(values, self.domain_size)
        reports = np.empty(checked.size, self.report_dtype)
        self._perturb(checked, reports, rng)
        return reports

    # Φ, on the server

    @cached_property
    def report_dtype(self) -> np.dtype[np.void]:
        """Structured dtype of reports, with the byte layout of the binary format."""
        import numpy as np

        shape = () if self.length is None else (self.length,)
        return np.dtype(
            [(name, f"<u{wire.bytes_below(bound)}", shape) for name, bound in self.fields.items()]
        )

    @property
    def report_bytes(self) -> int:
        """Size of a report in bytes, computed without numpy."""
        return wire.report_bytes(self.fields.values(), self.length)

    @property
    def state_size(self) -> int:
        """The length of the state vector."""
        return self.domain_size

    @property
    def cost(self) -> int:
        """Steps to count one report, such as increments or hashes."""
        return 1 if self.length is None else self.length

    def zeros(self) -> npt.NDArray[np.int64]:
        """Returns an empty state of shape (state_size,)."""
        import numpy as np

        return np.zeros(self.state_size, np.int64)

    def check(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Returns an (n,) mask of the well-formed reports."""
        arguments.check_reports(reports, self.report_dtype)
        return self._well_formed(reports)

    def likely(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Returns an (n,) mask of the reports that pass the Hamming weight check.

        A report fails only under unary encoding, if it has too few or too many 1 bits. For each value, the report of an
        honest client fails with a probability of at most 10⁻¹².
        """
        import numpy as np

        arguments.check_reports(reports, self.report_dtype)
        return np.ones(reports.size, np.bool_)

    def accumulate(self, state: npt.NDArray[np.int64], reports: npt.NDArray[np.void]) -> None:
        """Adds n well-formed reports to a state in place.

        Raises:
            TypeError: a state that is not int64, or reports that are not of `report_dtype`.
            ValueError: a malformed report, or a state that has another shape or is not writable and contiguous.
        """
        arguments.check_counting(state, self.state_size)
        good = self.check(reports)
        if not good.all():
            first = int(good.argmin())
            raise ValueError(f"report {first} is malformed: {reports[first]}; {self._allowed()}")
        self._accumulate(state, reports)

    @abstractmethod
    def accumulate_runs(
        self,
        addresses: npt.NDArray[np.int64],
        runs: npt.NDArray[np.int64],
        reports: npt.NDArray[np.void],
    ) -> None:
        """Counts checked reports into the states at m addresses.

        See `ldp.oracles.partitioned.accumulate_partitioned`. Wrong arguments corrupt memory.
        """

    def support(self, state: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns the number of reports that support each value, as (d,) int64."""
        arguments.check_state(state, self.state_size)
        return state.copy()

    def estimate(self, counts: npt.ArrayLike, n: int) -> Estimate:
        """Returns the unbiased estimate f̃ = (c/n − q)/(p − q) (Equation 2).

        A frequency is the share of a value among the users of the n reports. For a state pass `support(state)`.

        Args:
            counts: (d,) integers, the support of each value, 0 ≤ c ≤ n.
            n: the number of reports, n ≥ 1.

        Raises:
            TypeError: `counts` or `n` that are not integers.
            ValueError: n below 1, a count outside 0..n, a number of counts other than d, or an impossible sum. The sum
                is n under GRR and k·n under Subset Selection; for Hadamard and PGR see `PreferredMessages`.

        Example:
            >>> import ldp
            >>> ldp.GRR("1", domain_size=2).estimate([650, 350], n=1000).frequencies.round(3)
            array([0.825, 0.175])
        """
        from ldp.estimate import Estimate

        n = arguments.as_integer("n", n, 1, (1 << 63) - 1)
        counts = arguments.as_counts(counts, n, self.domain_size)
        self._check_sums(counts, n)
        frequencies = (counts / n - float(self.q)) / float(self.p - self.q)
        return Estimate(frequencies, n, self, counts=counts)

    def estimate_reports(self, reports: npt.NDArray[np.void]) -> Estimate:
        """Returns the estimate from n reports; see `estimate`.

        Raises:
            TypeError: an array that is not of `report_dtype`.
            ValueError: malformed reports, no reports, or an array that is not one-dimensional.
        """
        import numpy as np

        malformed = np.flatnonzero(~self.check(reports))
        if malformed.size:
            places = ", ".join(map(str, malformed[:_PLACES])) + (", …" if malformed.size > _PLACES else "")
            raise ValueError(
                f"{malformed.size} of {reports.size} reports are malformed, at {places}; {self._allowed()}. "
                "check(reports) returns a mask of the well-formed reports"
            )
        state = self.zeros()
        self._accumulate(state, reports)
        return self.estimate(self.support(state), reports.size)

    # Distribution of the counts, for simulation and for the errors of sets

    def simulate(self, histogram: npt.ArrayLike, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draws the support counts of a population, as (d,) int64.

        `histogram` is (d,), the number of users with each value. The distribution is exact, including the dependence
        between counts, but assumes an ideal hash for OLH. The cost is O(d·min(n, √k)) per 9·10⁸ users for Subset
        Selection, O(min(n, d·K) + K log K) for Hadamard and PGR, and O(d) for other protocols.

        Raises:
            TypeError: a histogram whose entries are not integers, or an `rng` that is not a numpy generator.
            ValueError: a negative number of users, no users, or a shape other than (d,).
        """
        arguments.check_generator(rng, "a numpy Generator")
        return self._simulate(arguments.as_histogram(histogram, self.domain_size), rng)

    def set_variances(self, subset: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Returns the variance of a report's support in a set, per user's value.

        A report of a user with value u supports X of the set's m values. Entry u of the (d,) result is V_u, the
        variance of X. The mean of X is p + (m−1)q if u is in the set, and mq otherwise. If n_u users have value u, the
        variance of the set's count Σ c is exactly Σ_u n_u·V_u. The cost is O(K log K) for Hadamard and PGR, and O(d)
        for other protocols.

        Raises:
            TypeError: indices that are not integers.
            ValueError: an index outside the domain, a repeated index, an empty set, or an array that is not
                one-dimensional.

        Example:
            >>> import ldp
            >>> ldp.OUE("1", domain_size=3).set_variances([0, 2]).round(3)
            array([0.447, 0.393, 0.447])
        """
        indices = arguments.as_indices(subset, self.domain_size)
        if indices.size == 0:
            raise ValueError("the set is empty; it needs at least one value")
        return self._set_variances(indices)

    def sum_law(self) -> tuple[float, float]:
        """Returns the variance and the largest step of the sum of all counts.

        The mean of the sum over n reports is n(p + (d−1)q). The sum consists of independent parts. Under OLH (with an
        ideal hash), OUE and SUE, a part is one report's support for one value. Under Hadamard and PGR, a part is one
        report. Under GRR and Subset Selection, and under PGR with K = d, the sum is constant.

        Returns:
            (variance, step), both 0 if the sum is constant. `variance` is the largest variance of one report's
            contribution. `step` is the largest distance of one part from its mean. The cost is O(K log K) for Hadamard
            and PGR, and O(1) for other protocols.
        """
        variance = float(self._two_variances(self.domain_size)[0])
        return variance, 1.0 if variance else 0.0

    def repeated_variance(self, variance: float, m: int, k: int) -> float:  # noqa: ARG002  # m is for overrides
        """Returns the variance per report of k reports with memoised noise.

        All reports belong to one device. `variance` is the variance of one report's support in a set of m values. By
        default, all reports of a value are equal, and the result is k·variance.

        Example:
            >>> import ldp
            >>> rappor = ldp.RAPPOR("1/2", "3/4", "1/2", domain_size=8)
            >>> [round(each.repeated_variance(0.25, 1, 30), 4) for each in (rappor, ldp.OUE("1", domain_size=8))]
            [0.5898, 7.5]
        """
        return k * variance

    @property
    def memoised_stages(self) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
        """The probabilities (p₁, q₁) of memoised noise, and (p₂, q₂) of a report.

        See `ldp.intervals.repeats`. By default, the client stores the report.
        """
        return (self.p, self.q), (Fraction(1), Fraction(0))

    @property
    def most_supported(self) -> int:
        """Largest number of values that one accepted report supports.

        Example:
            >>> import ldp
            >>> [ldp.oracle(name, "1", domain_size=1024).most_supported for name in ("grr", "subset", "pgr", "oue")]
            [1, 275, 364, 380]
        """
        return self.domain_size

    def supported_of(self, subset: npt.NDArray[np.int64]) -> tuple[int, int]:
        """Returns the fewest and the most values of a set that a report supports.

        Only reports that pass all checks are considered. `subset` contains m distinct indices, which are not checked.
        The cost is O(K log K) for Hadamard and PGR, and O(m) for other protocols.

        Example:
            >>> import ldp, numpy as np
            >>> [ldp.oracle(name, "1", domain_size=13).supported_of(np.arange(9)) for name in ("grr", "subset", "pgr")]
            [(0, 1), (0, 3), (1, 4)]
        """
        return 0, int(subset.size)

    # Hooks that protocols override, called with checked arguments

    @abstractmethod
    def _perturb(
        self, values: npt.NDArray[np.int64], reports: npt.NDArray[np.void], rng: np.random.Generator | None
    ) -> None: ...

    def _simulate(self, histogram: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
        own = rng.binomial(histogram, float(self.p))
        counts: npt.NDArray[np.int64] = own + rng.binomial(histogram.sum() - histogram, float(self.q))
        return counts

    def _set_variances(self, subset: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        import numpy as np

        inside, outside = self._two_variances(subset.size)
        variances = np.full(self.domain_size, float(outside))
        variances[subset] = float(inside)
        return variances

    def _two_variances(self, m: int) -> tuple[Fraction, Fraction]:
        """Returns V_u of `set_variances`, for u inside and u outside the set."""
        present, absent = self.p * (1 - self.p), self.q * (1 - self.q)
        return present + (m - 1) * absent, m * absent

    def _check_sums(self, counts: npt.NDArray[np.int64], n: int) -> None:
        """Raises ValueError for an impossible sum; by default, none is impossible."""

    def _well_formed(self, reports: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        import numpy as np

        good = np.ones(reports.size, np.bool_)
        for name, bound in self.fields.items():
            if bound < 1 << 8 * self.report_dtype[name].itemsize:  # else all values of the type are
                good &= reports[name] < bound
        return good

    def _allowed(self) -> str:
        return f"the bounds are {dict(self.fields)}"

    # Helpers for protocols

    def _accumulate(self, state: npt.NDArray[np.int64], reports: npt.NDArray[np.void]) -> None:
        import numpy as np

        from ldp import kernels

        addresses, runs = np.array([kernels.address_of(state)]), np.array([[0], [reports.size]])
        self.accumulate_runs(addresses, runs, reports)

    def column(self, reports: npt.NDArray[np.void], name: str) -> npt.NDArray[Any]:
        """Returns a field of reports as the read-only array that kernels expect."""
        import numpy as np

        column = reports[name]
        # np.require is slow even if the array meets the requirements
        if not (column.flags.c_contiguous and column.flags.aligned and column.dtype.isnative):
            column = np.require(column, column.dtype.newbyteorder("="), ["C", "A"])
        column = column.view()
        column.flags.writeable = False
        return column

    def _checked_value(self, value: int) -> int:
        return arguments.as_value("value", value, self.domain_size)
