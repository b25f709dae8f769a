"""The limits against which sums are judged, by the numbers, and how goals are read."""

import unittest

from cases import DELAY, GIGABIT, MIB, OPEN_MPI, Case, Goals, Layout, all_cases


def spent(layout, shares, size):
    """Seconds of the busiest link when the islands own these shares."""
    others = len(shares) - 2
    return max(size * (1 + others * share) / layout.rate(i) for i, share in enumerate(shares))


class LimitTest(unittest.TestCase):
    def test_two_islands_exchange_all(self):
        self.assertAlmostEqual(Layout("", (2, 2)).limit(16 * MIB), 16 * MIB / GIGABIT)
        self.assertAlmostEqual(Layout("", (3, 1), (GIGABIT, 25e6)).limit(MIB), MIB / 25e6)

    def test_equal_islands_share_equally(self):
        layout = Layout("", (3, 2, 1))
        self.assertAlmostEqual(layout.limit(MIB), spent(layout, [1 / 3] * 3, MIB))

    def test_a_slow_link_decides_alone(self):
        layout = Layout("", (2, 2, 2), (GIGABIT, GIGABIT, 25e6))
        self.assertAlmostEqual(layout.limit(16 * MIB), 0.671, places=3)
        self.assertAlmostEqual(layout.limit(MIB), spent(layout, [0.5, 0.5, 0], MIB))

    def test_no_shares_are_better(self):
        layout = Layout("", (1, 1, 1), (3e8, 2e8, 1.7e8))
        steps = range(0, 101)
        best = min(spent(layout, [a / 100, b / 100, (100 - a - b) / 100], MIB) for a in steps for b in steps if a + b <= 100)
        self.assertLessEqual(layout.limit(MIB), best)
        self.assertAlmostEqual(layout.limit(MIB) / best, 1, places=1)

    def test_one_host_has_no_links(self):
        self.assertIsNone(Layout("", (4,)).limit(MIB))


class GoalsTest(unittest.TestCase):
    case = Case(Layout("2x2", (2, 2)), 16 * MIB, Goals(of_limit=0.95, over_mpi=0.7, over_best=0.95))

    def kept(self, ours, peers):
        return [kept for _, _, kept in self.case.verdicts(ours, peers)]

    def test_each_goal_is_judged(self):
        limit = self.case.limit
        self.assertEqual(self.kept(limit, {OPEN_MPI: 2 * limit, "other": 1.1 * limit}), [True, True, True])
        self.assertEqual(self.kept(1.1 * limit, {OPEN_MPI: 1.2 * limit, "other": 1.1 * limit}), [False, False, False])

    def test_without_figures_nothing_is_judged(self):
        self.assertEqual(self.kept(None, {OPEN_MPI: 1}), [])
        self.assertEqual(len(self.kept(1, {})), 1)

    def test_round_trips(self):
        case = Case(Layout("2x2", (2, 2)), 1024, Goals(round_trips=1.3))
        self.assertEqual([kept for _, _, kept in case.verdicts(2.4 * DELAY, {})], [True])
        self.assertEqual([kept for _, _, kept in case.verdicts(2.8 * DELAY, {})], [False])

    def test_round_trips_are_those_of_the_layout(self):
        case = Case(Layout("", (2, 2), delay=0.02), 1024, Goals(round_trips=1.3))
        self.assertEqual([kept for _, _, kept in case.verdicts(0.05, {})], [True])
        self.assertEqual([kept for _, _, kept in case.verdicts(0.053, {})], [False])

    def test_names_are_unlike(self):
        names = [case.name for case in all_cases()]
        self.assertEqual(len(names), len(set(names)))
        self.assertIn("2x2 64MiB", names)


if __name__ == "__main__":
    unittest.main()
