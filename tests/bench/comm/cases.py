"""What the benchmark of sums measures: islands of ranks, how they are joined, sizes; the least time that the links allow, and
what we promise."""

from dataclasses import dataclass, field

GIGABIT = 125e6  # bytes per second
DELAY = 0.0002  # seconds, one way: a round trip takes 0.4 ms
KIB, MIB = 1 << 10, 1 << 20

OPEN_MPI = "open mpi"


@dataclass(frozen=True)
class Layout:
    """Islands are hosts; within one there are no limits. A single island has no network: it is this machine."""

    name: str
    islands: tuple  # ranks of each
    rates: tuple = ()  # bytes per second of each island's link, both ways; default: GIGABIT
    delay: float = DELAY  # one way

    def rate(self, island):
        return self.rates[island] if self.rates else GIGABIT

    def limit(self, size):
        """Seconds that the links need at least to sum `size` bytes; None where there are none.

        Each island reduces within itself first. Of k islands, i owns the share s_i: it sends the others' shares to their owners and
        its own summed share to all others, size * (1 - s_i + (k - 1) * s_i) bytes, and receives as many. The shares that add up to
        one are chosen so that the slowest island is done first: a link on which even a share of nothing takes longest decides alone."""
        islands = len(self.islands)
        if islands < 2:
            return None
        rates = [self.rate(i) for i in range(islands)]
        alone = size / min(rates)
        return max(alone, size * (2 * islands - 2) / sum(rates)) if islands > 2 else alone


@dataclass(frozen=True)
class Goals:
    """What ours must reach; None: nothing of that kind."""

    of_limit: float = None  # limit / ours, at least
    over_mpi: float = None  # ours / MPI_Allreduce, at most
    over_best: float = None  # ours / the best peer, at most
    round_trips: float = None  # ours in round trips, at most


@dataclass(frozen=True)
class Case:
    layout: Layout
    size: int
    goals: Goals = field(default_factory=Goals)

    @property
    def name(self):
        return f"{self.layout.name} {size_text(self.size)}"

    @property
    def limit(self):
        return self.layout.limit(self.size)

    def verdicts(self, ours, peers):
        """[(what is promised, what was measured, whether it is kept)]; what there is no figure for is left out."""
        if not ours:
            return []
        figures = [("of the limit", ">=", self.goals.of_limit, self.limit and self.limit / ours),
                   ("x " + OPEN_MPI, "<=", self.goals.over_mpi, peers.get(OPEN_MPI) and ours / peers[OPEN_MPI]),
                   ("x best peer", "<=", self.goals.over_best, ours / min(peers.values()) if peers else None),
                   ("round trips", "<=", self.goals.round_trips, ours / (2 * self.layout.delay))]
        return [(f"{side} {goal:g} {what}", value, value >= goal if side == ">=" else value <= goal)
                for what, side, goal, value in figures if goal and value]


def size_text(size):
    return f"{size // MIB}MiB" if size >= MIB else f"{size // KIB}KiB"


def all_cases():
    two = Layout("2x2", (2, 2))
    large = Goals(of_limit=0.95, over_mpi=0.7, over_best=0.95)
    small = Goals(over_best=1.05)
    cases = [Case(two, size * MIB, large) for size in (64, 16, 4)]
    cases += [Case(two, 1 * MIB, Goals(of_limit=0.9))]
    cases += [Case(two, size * KIB, small) for size in (256, 64)]
    cases += [Case(two, 1 * KIB, Goals(round_trips=1.3))]
    unequal = Goals(of_limit=0.93, over_mpi=0.5)
    cases += [Case(Layout("3+1", (3, 1)), 16 * MIB, unequal), Case(Layout("3+2+1", (3, 2, 1)), 16 * MIB, unequal)]
    one_slow = Layout("2+2+2 one at 200Mbit/s", (2, 2, 2), (GIGABIT, GIGABIT, 25e6))
    cases += [Case(one_slow, 16 * MIB, Goals(of_limit=1 / 1.08))]
    far = Layout("2x2 20ms", (2, 2), delay=0.02)  # 5 MB are on the way in a round trip; nothing is promised
    cases += [Case(far, 16 * MIB), Case(far, 64 * MIB), Case(Layout("1x1 20ms", (1, 1), delay=0.02), 64 * MIB)]
    one_host = Layout("1x4", (4,))
    sizes = (16 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 16 * MIB, 64 * MIB)
    return cases + [Case(one_host, size, Goals(over_mpi=0.5)) for size in sizes]
