"""The rule `evidence` for very many receivers at once: the same decisions on torch tensors, receivers first.

Claims stand in a table of classes and senders [B, C, K], the receiver's own first, with a mask where nothing is said.
What `bristle.rules.evidence` works out claim by claim is a product or a sort over that table; the 64-bit part is small.
Guards of the rule that cost more than the rest are not here. Against crowds: own classes are not kept near the own
mean, and the scatter is not compared with the own samples, where a class has eight owners or more; and nobody goes back
to its own answer where it is outvoted about its own samples. Of the scatter: nobody is cut who stands out against the
pooled covariance, and features in small units have the same floor as all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bristle._core import Array
from bristle.rules.evidence import Evidence
from bristle.rules.evidence.location import FEW, MOST
from bristle.rules.evidence.rule import APART, DIFFERING, DISSENT, INSIDE, LEAN
from bristle.rules.evidence.vetting import DISTORTION, EXTRA, LENIENT, MARGIN, SURE, THEFT
from bristle.simulation.large.scatter import Sketches, eye, pooled

FLAT = 1e3
"""Where locations are so much further apart along some axis than along another, axes are looked at one by one."""
AXES = 1e-3
"""The share of the largest spread below which an axis is left out."""


@dataclass(frozen=True, eq=False)
class Stated:
    """What K senders state to B receivers, the receiver's own statement first.

    Parameters
    ----------
    rows, counts : array [B, K, C, D], [B, K, C]
    sketches : Sketches
    """

    rows: Array
    counts: Array
    sketches: Sketches


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What B receivers decided.

    Parameters
    ----------
    head, bias : array [B, C, D], [B, C]
    weights : array [B, K, C]
        The share of each sender, the receiver first, in the location of each class that is answered.
    refused : boolean array [B, K]
    unusual : boolean array [B]
        Who must be asked one by one: who has too few samples to measure a variance.
    """

    head: Array
    bias: Array
    weights: Array
    refused: Array
    unusual: Array


def weigh(torch: Any, rule: Evidence, stated: Stated, features: Array, labels: Array) -> Verdicts:
    """Decide for receivers with the samples `features` [B, S, D] and `labels` [B, S] (-1: padding)."""
    return _Weighing(torch, rule, stated, features, labels).decide()


class _Weighing:
    def __init__(self, torch: Any, rule: Evidence, stated: Stated, features: Array, labels: Array) -> None:
        self.torch, self.rule = torch, rule
        self.rows, self.features, self.labels = stated.rows, features, labels
        batch, senders, classes, depth = stated.rows.shape
        self.shape = (batch, classes, senders)
        self.valid = (stated.counts > 0).permute(0, 2, 1)
        self.counts = stated.counts.double().permute(0, 2, 1).contiguous()
        real, place = labels >= 0, labels.clamp(min=0)
        own = torch.take_along_dim(stated.rows[:, 0], place[:, :, None].expand(-1, -1, depth), dim=1)
        self.about = torch.where(real[:, :, None], features - own, 0.0)
        self.real, self.place = real, place
        self.samples = real.sum(dim=1).double()
        self.held = self.valid[:, :, 0]
        self.freedom = (self.samples - self.held.sum(dim=1)).clamp(min=0)
        self.scatter = pooled(torch, stated.sketches, self.about, self.samples, rule.cap)
        means = (stated.rows * (stated.counts > 0)[..., None]).reshape(batch, senders * classes, depth)
        self.means = means
        self.stated = self.scatter.vectors(torch, means)
        rest = self.scatter.vectors(torch, self.about)
        self.products = self._inner(self.stated, self.stated)
        self.rest = self._inner(rest, self.stated)
        sizes = ((rest[0] ** 2).sum(dim=2) - (rest[1] ** 2).sum(dim=2)).double() * real
        self.spread = (sizes.sum(dim=1) / self.freedom.clamp(min=1))[:, None, None]
        # Of own samples from the mean of their class, leaning on that of all.
        sums = torch.zeros((batch, classes), dtype=sizes.dtype, device=sizes.device).scatter_add(1, place, sizes)
        self.spreads = (sums + self.spread[..., 0]) / ((self.counts[:, :, 0] - 1).clamp(min=0) + 1)
        self._compare()

    def _compare(self) -> None:
        """Work out how far apart claims of one class are."""
        torch, (batch, classes, senders) = self.torch, self.shape
        self.blocks = self.products.reshape(batch, senders, classes, senders, classes)
        # Inner products of the claims of one class: [B, C, K, K].
        self.alike = torch.diagonal(self.blocks, dim1=2, dim2=4).permute(0, 3, 1, 2)
        self.squares = torch.diagonal(self.alike, dim1=2, dim2=3)
        self.apart = (self.squares[..., :, None] + self.squares[..., None, :] - 2 * self.alike).clamp(min=0)

    def _align(self, some: Array, differing: Array) -> None:
        """Take out of the claims that some receivers hold what people differ in, as `aligned` does."""
        torch, (_, classes, senders) = self.torch, self.shape
        valid = self.valid[some].permute(0, 2, 1)
        pull = torch.where(valid, self._capped(self.valid)[some].permute(0, 2, 1), 0.0)
        pull = pull * (valid.sum(dim=(1, 2)) / pull.sum(dim=(1, 2)))[:, None, None]
        ridge = self.held[some].sum(dim=1) / (differing - 1)
        diagonal = torch.cat([pull.sum(dim=2) + ridge[:, None], pull.sum(dim=1)], dim=1)
        normal = torch.diag_embed(torch.where(diagonal > 0, diagonal, 1.0))
        normal[:, :senders, senders:], normal[:, senders:, :senders] = pull, pull.mT
        of_sender = torch.diag_embed(pull.permute(0, 2, 1)).permute(0, 2, 3, 1).flatten(2)
        of_class = torch.diag_embed(pull).permute(0, 3, 1, 2).flatten(2)
        right = torch.cat([of_sender, of_class], dim=1)
        offsets = torch.linalg.solve(normal, right)[:, :senders]
        whole = offsets[:, :, None, :].expand(-1, -1, classes, -1).flatten(1, 2)
        turn = (eye(torch, senders * classes, whole) - whole) * valid.flatten(1)[:, :, None]
        narrow = turn.to(self.means.dtype)
        self.means[some] = narrow @ self.means[some]
        for values in self.stated:
            values[some] = narrow @ values[some]
        self.products[some] = turn @ self.products[some] @ turn.mT
        self.rest[some] = self.rest[some] @ turn.mT
        self._compare()

    @staticmethod
    def _inner(first: tuple[Array, Array], second: tuple[Array, Array]) -> Array:
        return (first[0] @ second[0].mT - first[1] @ second[1].mT).double()

    def decide(self) -> Verdicts:
        torch = self.torch
        unusual = self.freedom < 1
        self.weights = self._independent()
        differing = self._differing()
        some = torch.nonzero((differing > DIFFERING) & ~unusual)[:, 0]
        if len(some):
            self._align(some, differing[some])
        kept = self.valid
        located = self._locate(kept)
        lenience = 1 + LENIENT / self.freedom.clamp(min=1)
        limit = self.rule.refuse * lenience
        worst = self._vet(located, limit, APART * lenience)
        refused = worst > limit[:, None]
        if bool(refused.any()):
            kept = self.valid & ~refused[:, None, :]
            located = self._locate(kept)
        dissent, total = self._disputes(located, kept, DISSENT * lenience)
        known = kept.any(dim=2)
        foreign = known & ~self.held
        disputed = foreign & ((dissent > self.rule.quorum - 1) | (dissent >= total / 2))
        lean = self._leaning(located, kept)
        head, bias = self._answer(located, known, disputed, lean)
        shares = located.shares * known[:, :, None]
        return Verdicts(head, bias, shares.permute(0, 2, 1), refused, unusual | ~torch.isfinite(bias).all(dim=1))

    def _capped(self, kept: Array, most: float = 1.0) -> Array:
        """Return the counts, none above `most` times what enough owners of its class claim."""
        return self.torch.minimum(self.counts, most * self._typical(kept))

    def _typical(self, kept: Array) -> Array:
        """Return a count that some owners of each class have [B, C, 1]; see `typical_of` of the rule."""
        torch = self.torch
        ordered, size = torch.sort(torch.where(kept, self.counts, torch.inf), dim=2).values, kept.sum(dim=2)[..., None]
        usual = torch.take_along_dim(ordered, ((size - 1) // 2).clamp(min=0), dim=2)
        if self.shape[2] < 2 * FEW:
            return usual
        many = torch.take_along_dim(ordered, (size - FEW).clamp(min=0), dim=2)
        many = torch.minimum(many, MOST * ordered[:, :, FEW - 1 : FEW])
        return torch.where(size < 2 * FEW, usual, many)

    def _independent(self, alike: float = 0.1) -> Array:
        counts = self._capped(self.valid)
        larger = self.torch.maximum(counts[..., :, None], counts[..., None, :])
        both = self.valid[..., :, None] & self.valid[..., None, :]
        close = (self.apart < alike * self.spread[..., None] * 2 / larger) & both
        close = close | eye(self.torch, self.shape[2], counts).bool()
        return self.valid.double() / close.sum(dim=3)

    def _differing(self) -> Array:
        """Return by how much more the mean deviations of people vary than sampling noise does [B]."""
        torch, blocks = self.torch, self.blocks
        own = torch.diagonal(blocks, dim1=1, dim2=3).permute(0, 3, 1, 2)
        between = blocks[:, :, :, 0, :]
        deviations = own - between - between.mT + blocks[:, :1, :, 0, :]
        common = (self.valid & self.held[:, :, None]).double().permute(0, 2, 1)
        moved = (common[:, :, None, :] @ deviations @ common[..., None])[..., 0, 0]
        counts = self.counts.permute(0, 2, 1).clamp(min=1)
        noise = self.spread[..., 0] * (common * (1 / counts + 1 / counts[:, :1])).sum(dim=2)
        found = torch.where(common.any(dim=2), moved / noise.clamp(min=1e-300), torch.inf)[:, 1:]
        return self._third(found).clamp(min=1)

    def _third(self, values: Array) -> Array:
        """Return the third smallest of the finite values [B, K], or the lower median of fewer; 1 of none."""
        torch = self.torch
        ordered, count = torch.sort(values, dim=1).values, torch.isfinite(values).sum(dim=1)
        place = ((count - 1) // 2).clamp(min=0, max=2)
        return torch.where(count > 0, torch.take_along_dim(ordered, place[:, None], dim=1)[:, 0], 1.0)

    def _locate(self, kept: Array) -> _Located:
        torch, (batch, classes, _) = self.torch, self.shape
        known = kept.any(dim=2)
        count = known.sum(dim=1).double().clamp(min=1)[:, None, None]
        weights = self.weights * kept
        strength = self._capped(kept).sqrt() * weights
        shares = self._confirmed(kept, weights, strength)
        # Row c of `whole` mixes claims (k, c).
        whole = torch.diag_embed(shares.permute(0, 2, 1)).permute(0, 2, 1, 3).reshape(batch, classes, -1)
        mixture = whole
        both = known[:, :, None] & known[:, None, :]
        ones = (known.double() / count[..., 0].sqrt())[:, :, None]
        for _ in range(2):
            projected = mixture @ self.products
            inner = projected @ mixture.mT * both
            row = inner.sum(dim=2, keepdim=True) / count
            centred = (inner - row - row.mT + row.sum(dim=1, keepdim=True) / count) * both
            trace = torch.diagonal(centred, dim1=1, dim2=2).sum(dim=1)[:, None, None]
            step = trace / count + 1e-30
            filled = centred + step * ones @ ones.mT + torch.diag_embed((~known).double()) * step
            root, failed = torch.linalg.cholesky_ex(filled)
            root = torch.where((failed > 0)[:, None, None], eye(torch, classes, root), root)
            inverse = (torch.cholesky_inverse(root) - ones @ ones.mT / step) * both
            size = torch.linalg.matrix_norm(inverse)
            thin = torch.nonzero((failed > 0) | (size * trace[:, 0, 0] > FLAT))[:, 0]
            if len(thin):
                inverse[thin] = _along_axes(torch, centred[thin])
            along = self._along(projected)
            wanted = self._weighted_median(along, strength) - (shares[:, :, None, :] @ along)[:, :, 0]
            wanted = torch.where(both, wanted, 0.0)
            mixture = whole - wanted @ inverse @ mixture
        projected = mixture @ self.products
        products = projected @ mixture.mT
        along = self.rest @ mixture.mT * self.real[:, :, None]
        measured = _pairs(torch, along.mT @ along) / self.freedom.clamp(min=1)[:, None, None]
        expected = 2 * _pairs(torch, products)
        free = self.freedom[:, None, None]
        variance = (free * measured * both + LEAN * expected) / (free + LEAN)
        return _Located(mixture, shares, projected, products, variance, known)

    def _along(self, projected: Array) -> Array:
        """Return the products of the claims (k, c) with the location of c less that of o: [B, C, K, C]."""
        batch, classes, senders = self.shape
        table = projected.reshape(batch, classes, senders, classes)
        mine = self.torch.diagonal(table, dim1=1, dim2=3).permute(0, 2, 1)
        return mine[..., None] - table.permute(0, 3, 2, 1)

    def _weighted_median(self, values: Array, weights: Array) -> Array:
        """Return the weighted medians [B, C, O] over senders of values [B, C, K, O]."""
        torch = self.torch
        present = (weights > 0)[..., None]
        ordered, order = torch.sort(torch.where(present, values, torch.inf), dim=2, stable=True)
        sums = torch.take_along_dim(weights[..., None].expand_as(values), order, dim=2).cumsum(dim=2)
        half = sums[:, :, -1:] / 2
        lower = (sums < half - 1e-9).sum(dim=2, keepdim=True)
        upper = (sums < half + 1e-9).sum(dim=2, keepdim=True).clamp(max=values.shape[2] - 1)
        both = torch.take_along_dim(ordered, lower, dim=2) + torch.take_along_dim(ordered, upper, dim=2)
        return both[:, :, 0] / 2

    def _confirmed(self, kept: Array, weights: Array, votes: Array, admit: float = 1.3) -> Array:
        """Return the shares [B, C, K] of claims in a mean over those that a majority of votes confirms."""
        torch, senders = self.torch, self.shape[2]
        counts = torch.where(kept, self._capped(kept, MOST), 1.0)
        pull, weights = counts * weights, votes
        both = kept[..., :, None] & kept[..., None, :]
        same = eye(torch, senders, counts).bool()
        apart = torch.where(both, self.apart / (1 / counts[..., :, None] + 1 / counts[..., None, :]), torch.inf)
        nearest = torch.where(same, torch.inf, apart).amin(dim=3)
        size = kept.sum(dim=2, keepdim=True)
        ordered = torch.sort(torch.where(kept, nearest, torch.inf), dim=2).values
        places = [((size - 1) // 2).clamp(min=0), (size // 2).clamp(max=senders - 1)]
        nearest = sum(torch.take_along_dim(ordered, place, dim=2) for place in places) / 2
        floor = torch.maximum(self.spread, nearest)
        order = torch.sort(torch.where(same & kept[..., None], -1.0, apart), dim=3, stable=True).indices
        sums = torch.take_along_dim(weights[..., None, :].expand_as(apart), order, dim=3).cumsum(dim=3)
        half = weights.sum(dim=2)[..., None, None] / 2
        enough = torch.minimum((sums <= half + 1e-9).sum(dim=3) + 1, size)
        chosen = torch.arange(senders, device=kept.device) < enough[..., None]
        among = torch.zeros_like(apart).scatter(3, order, chosen.double())
        pairs = torch.where(same, 0.0, weights[..., :, None] * weights[..., None, :])
        finite = torch.where(both, apart, 0.0)
        total = ((among @ pairs) * among).sum(dim=3)
        costs = ((among @ (pairs * torch.maximum(finite, floor[..., None]))) * among).sum(dim=3)
        costs = torch.where((total > 0) & kept, costs / total.clamp(min=1e-300), torch.inf)
        # The receiver believes its own claim, where it has one.
        costs = torch.where((among[..., 0] > 0) | ~kept[:, :, :1], costs, torch.inf)
        best, least = costs.min(dim=2, keepdim=True)
        inside = torch.take_along_dim(among, least[..., None], dim=2)[..., 0, :] > 0
        others = torch.where(same, 0.0, (weights * inside)[..., None, :])
        near = (finite * others).sum(dim=3) / others.sum(dim=3).clamp(min=1e-12)
        found = torch.where(inside | (near <= admit * torch.maximum(best, floor)), pull, 0.0)
        found = torch.where((best < torch.inf) & (size > 2), found, pull)
        return found / found.sum(dim=2, keepdim=True).clamp(min=1e-300)

    def _vet(self, located: _Located, limit: Array, apart: Array) -> Array:
        """Return the worst deviation [B, K] of each sender's claims of classes that the receiver holds."""
        torch, held = self.torch, self.held
        several = (held.sum(dim=1) > 1)[:, None]
        others = torch.where(several, held, located.known)[:, None, :] & ~eye(torch, self.shape[1], limit).bool()
        tested = (self.valid & held[:, :, None]).clone()
        tested[:, :, 0] = False
        counts = self.counts.clamp(min=1)
        parts = 1 / counts + 1 / counts[:, :, :1]
        along = self._along(located.projected)
        noise = (located.variance[:, :, None, :] * parts[..., None]).clamp(min=0).sqrt()
        errors = (along - along[:, :, :1]).abs() / noise.clamp(min=1e-12)
        usable = tested[..., None] & others[:, :, None, :]
        errors = torch.where(usable, errors, -torch.inf).amax(dim=3)
        whole = torch.where(tested, self.apart[:, :, :, 0] / (parts * self.spreads[:, :, None]), -torch.inf)
        level = self._unit(whole, 1.5)
        unit = torch.minimum(self._unit(errors, 3.0), DISTORTION * level.sqrt())
        worst = torch.maximum(errors / unit, (limit / apart)[:, None, None] * whole / level)
        return worst.amax(dim=1).clamp(min=0)

    def _unit(self, values: Array, usual: float) -> Array:
        worst = values.amax(dim=1)[:, 1:]
        found = self._third(self.torch.where(self.torch.isfinite(worst), worst, self.torch.inf))
        return (found / usual).clamp(min=1)[:, None, None]

    def _disputes(
        self, located: _Located, kept: Array, dissent: Array, near: float = 7.0, apart: float = 3.0
    ) -> tuple[Array, Array]:
        """Return how many claims dissent from each location together [B, C], and how many there are."""
        torch, classes = self.torch, self.shape[1]
        weights, counts = self.weights * kept, self._capped(kept)
        counts = torch.where(kept, counts, 1.0)
        known = located.known
        others = known[:, None, :] & known[:, :, None] & ~eye(torch, classes, counts).bool()
        along = self._along(located.projected)
        own = torch.diagonal(located.products, dim1=1, dim2=2)
        place = (own[:, :, None] - located.products)[:, :, None, :]
        noise = located.variance.clamp(min=1e-12)[:, :, None, :]
        errors = (along - place).abs() / (noise / counts[..., None]).sqrt()
        errors = torch.where(others[:, :, None, :], errors, 0.0).amax(dim=3)
        table = located.projected.reshape(len(known), classes, -1, classes)
        mine = torch.diagonal(table, dim1=1, dim2=3).permute(0, 2, 1)
        distance = (self.squares - 2 * mine + own[:, :, None]).clamp(min=0)
        away = (errors > dissent[:, None, None]) | (distance * counts / self.spread > apart)
        away = away & kept & (others.any(dim=2))[:, :, None]
        both = 1 / counts[..., :, None] + 1 / counts[..., None, :]
        between = (along[:, :, :, None] - along[:, :, None]).abs() / (noise[:, :, None] * both[..., None]).sqrt()
        between = torch.where(others[:, :, None, None, :], between, 0.0).amax(dim=4)
        together = (between <= near) & (self.apart / (both * self.spread[..., None]) <= apart)
        together = together & away[..., :, None] & away[..., None, :]
        return (together * weights[..., None, :]).sum(dim=3).amax(dim=2), weights.sum(dim=2)

    def _leaning(self, located: _Located, kept: Array) -> Array:
        """Return by how much the biases of foreign classes go down [B, C] because few owners are outvoted."""
        torch, weights = self.torch, self.weights * kept
        total, count = weights.sum(dim=2), self._typical(kept)
        many = located.known & (total >= 2 * FEW)
        if not bool(many.any()):
            return torch.zeros_like(total)
        own = torch.diagonal(located.products, dim1=1, dim2=2)
        along = self._along(located.projected)
        away = along - (own[:, :, None] - located.products)[:, :, None, :]
        unit = (located.variance.clamp(min=0) / count).sqrt()
        counts = torch.where(kept, self.counts, 1.0)
        chance = unit * torch.special.ndtri(1 - FEW / total.clamp(min=2 * FEW))[:, :, None]

        def reached(values: Array) -> Array:
            values = values - unit[:, :, None, :] * (count / torch.minimum(counts, count))[..., None]
            values = torch.where(kept[..., None], values, -torch.inf)
            ordered, order = torch.sort(values, dim=2, descending=True, stable=True)
            sums = torch.take_along_dim(weights[..., None].expand_as(values), order, dim=2).cumsum(dim=2)
            rank = (sums < FEW - 1e-9).sum(dim=2, keepdim=True).clamp(max=values.shape[2] - 1)
            found = torch.take_along_dim(ordered, rank, dim=2)[:, :, 0]
            return torch.where((found > chance) & many[:, :, None], found, 0.0)

        foreign = located.known & ~self.held
        pairs = foreign[:, :, None] & self.held[:, None, :]
        moved = torch.where(pairs, reached(away) + reached(-away).mT, 0.0)
        error = torch.where(pairs & many[:, :, None], unit, 0.0)
        gap = _pairs(torch, located.products, clip=False) / 2
        sure = torch.where(moved > EXTRA * error, 2 * SURE, SURE)
        wanted = (sure * located.variance.clamp(min=0).sqrt() - gap).clamp(min=0)
        wanted = torch.where(error > 0, wanted, 0.0)
        found = torch.minimum((moved + EXTRA * error) / 2, wanted).amax(dim=2)
        return torch.where((moved != 0).any(dim=(1, 2), keepdim=False)[:, None], found, 0.0)

    def _answer(self, located: _Located, known: Array, disputed: Array, lean: Array) -> tuple[Array, Array]:
        torch = self.torch
        mixture = located.mixture.to(self.means.dtype)
        locations = mixture @ self.means
        head = self.scatter.solved(torch, mixture @ self.stated[0], mixture @ self.stated[1])
        start = -0.5 * (head * locations).sum(dim=2).double()
        bias, lowered = start - lean, disputed & self.held.any(dim=1, keepdim=True)
        if bool(lowered.any()):
            least = torch.maximum(self._lowering(located, head, locations, start, disputed), lean)
            bias = torch.where(lowered, start - least, bias)
        count = known.sum(dim=1).clamp(min=1)[:, None]
        answered = known[:, :, None]
        head = head - (head * answered).sum(dim=1, keepdim=True) / count[:, :, None]
        bias = bias - (bias * known).sum(dim=1, keepdim=True) / count
        length = torch.linalg.vector_norm(self.features * self.real[:, :, None], dim=2).amax(dim=1).clamp(min=1)
        head = head * answered
        loudest = torch.linalg.vector_norm(head, dim=2).amax(dim=1)
        least = torch.where(known, bias, torch.inf).amin(dim=1) - (2 * length * loudest).double() - 1
        return head, torch.where(known, bias, least[:, None])

    def _lowering(self, located: _Located, head: Array, locations: Array, bias: Array, disputed: Array) -> Array:
        """Return by how much the biases of disputed classes go down [B, C]; see `vetting.lowering` of the rule."""
        torch, held = self.torch, self.held
        counts = torch.take_along_dim(self.counts[:, :, 0], self.place, dim=1)
        wider = (counts / (counts - 1).clamp(min=1)).sqrt()[:, :, None]
        classes = self.shape[1]
        places = (locations @ head.mT).double()
        at = torch.take_along_dim(places, self.place[:, :, None].expand(-1, -1, classes), dim=1)
        scores = at + wider * (self.about @ head.mT).double() + bias[:, None, :]
        # What locations are off draws fresh samples away from them.
        inverse = 1 / self.counts.clamp(min=1)
        off = INSIDE * self.spread[..., 0] * (located.shares**2 * inverse).sum(dim=2)
        scores = scores - torch.take_along_dim(off, self.place, dim=1)[:, :, None] * held[:, None, :]
        lead = torch.where(disputed[:, None, :], scores, -torch.inf).amax(dim=2)
        lead = lead - torch.where(held[:, None, :], scores, -torch.inf).amax(dim=2)
        lead = torch.where(self.real, lead, -torch.inf)
        allowed = (THEFT * self.samples).long().clamp(max=lead.shape[1] - 1)
        ordered = torch.sort(lead, dim=1, descending=True).values
        lowered = (torch.take_along_dim(ordered, allowed[:, None], dim=1) + 1e-9).clamp(min=0)
        lowered = torch.where(torch.isfinite(lowered), lowered, 0.0)
        margin = MARGIN * (1 + LENIENT / self.freedom.clamp(min=1))[:, None, None]
        wanted = margin * located.variance.clamp(min=0).sqrt() - 0.5 * _pairs(torch, located.products, clip=False)
        wanted = torch.where(held[:, None, :], wanted, -torch.inf).amax(dim=2)
        return torch.maximum(lowered, wanted)


@dataclass(frozen=True, eq=False)
class _Located:
    """As `bristle.rules.evidence.Located` with claims (k, c), and the variance of a sample along discriminants."""

    mixture: Array
    shares: Array
    projected: Array
    products: Array
    variance: Array
    known: Array


def _along_axes(torch: Any, centred: Array) -> Array:
    """Return pseudo-inverses [B, C, C] along the axes in which classes differ: for the few where some hardly do."""
    values, vectors = torch.linalg.eigh(centred)
    kept = values > AXES * values[:, -1:].clamp(min=1e-300)
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    return (vectors * inverse[:, None, :]) @ vectors.mT


def _pairs(torch: Any, products: Array, *, clip: bool = True) -> Array:
    """Return the squared distances [B, C, C] of vectors with these inner products."""
    squares = torch.diagonal(products, dim1=1, dim2=2)
    found = squares[:, :, None] + squares[:, None, :] - 2 * products
    return found.clamp(min=0) if clip else found
