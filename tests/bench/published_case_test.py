"""`run.sh planner --case`: its plans scored by the published formula written down a second time, and against a mixed integer
program of the same instance solved by GLPK."""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest
from math import ceil, log2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import mixed_integer

BENCH = pathlib.Path(os.environ["MOTLEY_TEST_BIN_DIR"]) / "bench" / "bench_planner"
DEGREES = (1, 2)
BATCHES = (1, 2)
LAYERS = 6


def random_case(seed, types):
    """A case file of `types` device types; nothing in it is like anything else."""
    draw = random.Random(seed)
    layers = [{"parameters": {str(d): draw.uniform(5e6, 6e7) / d for d in DEGREES},
               "activation_bytes_per_sample": {str(d): draw.uniform(1e8, 9e8) / d for d in DEGREES},
               "output_bytes_per_sample": draw.uniform(1e6, 1e7)} for _ in range(LAYERS)]
    devices = {}
    for number in range(types):
        speed = draw.uniform(0.5, 3)
        profiles = []
        for batch in BATCHES:
            for degree in DEGREES:
                of = lambda least, most: [speed * draw.uniform(least, most) * (0.3 + batch) / degree ** 0.8 for _ in range(LAYERS)]
                profiles.append({"micro_batch": batch, "tensor": degree, "forward_seconds": of(0.002, 0.01),
                                 "backward_seconds": of(0.004, 0.02), "update_seconds": of(0.001, 0.003)})
        devices[f"card-{number}"] = {"memory_bytes": int(draw.uniform(4e9, 1.2e10)), "profiles": profiles}
    links = [{"from": a, "from_devices": m, "to": b, "to_devices": n, "bandwidth_GBps": [-0.002, draw.uniform(0.05, 0.2), draw.uniform(1, 5)]}
             for a in devices for b in devices for m in DEGREES for n in DEGREES]
    return {"version": 1, "name": "random", "global_batch": draw.randint(12, 20), "model": {"optimizer_bytes_per_parameter": 24, "layers": layers},
            "devices": devices, "links": links}


class Judge:
    """The published closed form, from its description in words."""

    def __init__(self, case):
        self.case = case
        self.layers = case["model"]["layers"]
        self.profiles = {(name, one["micro_batch"], one["tensor"]): one
                         for name, device in case["devices"].items() for one in device["profiles"]}
        self.links = {(link["from"], link["from_devices"], link["to"], link["to_devices"]): link["bandwidth_GBps"] for link in case["links"]}

    def passes(self, batch, replicas):
        return ceil(self.case["global_batch"] / (batch * replicas))

    def send(self, size, source, target):
        bandwidth = 0.0
        for coefficient in self.links[source + target]:
            bandwidth = bandwidth * log2(size / 1e6) + coefficient
        return size / 1e9 / bandwidth

    def output(self, layer, batch, source, target):
        return self.send(self.layers[layer]["output_bytes_per_sample"] * batch, source, target)

    def compute(self, stage, batch):
        first, end, config = stage
        one = self.profiles[config[0], batch, config[1]]
        return sum(one["forward_seconds"][first:end]) + sum(one["backward_seconds"][first:end])

    def update(self, stage, batch):
        return self.profiles[stage[2][0], batch, stage[2][1]]["update_seconds"][stage[0]]

    def allreduce(self, stage, replicas):
        return self.ring(*stage[:2], [stage[2]] * replicas)

    def fits(self, stage, batch, from_end):
        first, end, (name, degree) = stage
        need = sum(layer["parameters"][str(degree)] * 24 + layer["activation_bytes_per_sample"][str(degree)] * batch * from_end
                   for layer in self.layers[first:end])
        return need + (2e9 if degree == 1 else 3e9) <= self.case["devices"][name]["memory_bytes"]

    def ring(self, first, end, replicas):
        """Of a stage's sums over its replicas' configs, in their order."""
        if len(replicas) == 1:
            return 0.0
        degree = min(degree for _, degree in replicas)
        size = sum(layer["parameters"]["1"] for layer in self.layers[first:end]) * 4 / min(4, degree)
        seconds = 0.0
        while size > 0:
            bucket = min(size, 500e6) / len(replicas)
            seconds += 2 * (len(replicas) - 1) * max(self.send(bucket, (one, 1), (other, 1))
                                                     for (one, _), (other, _) in zip(replicas, replicas[1:]))
            size -= 500e6
        return seconds

    def busy(self, cuts, replicas, number, batch):
        """Compute and sends of one stage, by the slowest replica."""
        (first, end), last = cuts[number], len(cuts) - 1
        into = 0 if number == 0 else max(self.output(first, batch, own[number], own[number - 1]) for own in replicas)
        out = 0 if number == last else max(self.output(end - 1, batch, own[number], own[number + 1]) for own in replicas)
        if number == last:
            into *= 2
        elif number == 0 and last > 2:
            out *= 2
        return max(self.compute((first, end, own[number]), batch) for own in replicas) + into + out

    def step(self, cuts, replicas, batch):
        """`cuts`: layers of each stage; `replicas`: the configs of each one's stages."""
        busy = [self.busy(cuts, replicas, number, batch) for number in range(len(cuts))]
        stages = [(*cuts[number], own[number]) for own in replicas for number in range(len(cuts))]
        for number, stage in enumerate(stages):
            assert self.fits(stage, batch, len(cuts) - number % len(cuts)), stage
        return ((self.passes(batch, len(replicas)) - 1) * max(busy) + sum(busy) + max(self.update(stage, batch) for stage in stages)
                + max(self.ring(*cut, [own[number] for own in replicas]) for number, cut in enumerate(cuts)))


def shape_of(plan):
    """(layers of each stage, configs of each replica's stages) of a plan's document."""
    configs = lambda stages: [(stage["type"], stage["tensor"]) for stage in stages]
    unlike = [configs(one["stages"]) for one in plan.get("unlike", []) for _ in range(one["replicas"])]
    return ([(stage["first_layer"], stage["last_layer"] + 1) for stage in plan["stages"]],
            [configs(plan["stages"])] * (plan["replicas"] - len(unlike)) + unlike)


class EveryPlan:
    """The least step of all plans of a small cluster, whichever devices each replica has."""

    def __init__(self, case, cluster):
        self.judge, self.cluster, self.least = Judge(case), cluster, float("inf")
        self.configs = [(name, degree) for name in cluster for degree in DEGREES]
        for self.batch in BATCHES:
            for self.count in range(1, min(sum(cluster.values()), ceil(case["global_batch"] / self.batch)) + 1):
                self.extend([], [], dict(cluster))

    def extend(self, cuts, columns, left):
        """`columns`: of each stage the configs of all replicas."""
        first = cuts[-1][1] if cuts else 0
        if first == LAYERS:
            try:
                self.least = min(self.least, self.judge.step(cuts, list(zip(*columns)), self.batch))
            except AssertionError:
                pass  # it does not fit
            return
        for end in range(first + 1, LAYERS + 1):
            for column in self.columns(self.count, left):
                used = dict(left)
                for name, degree in column:
                    used[name] -= degree
                self.extend(cuts + [(first, end)], columns + [column], used)

    def columns(self, count, left):
        """Configs of so many replicas, in any order."""
        if count == 0:
            yield []
            return
        for name, degree in self.configs:
            if left[name] >= degree:  # hosts of four have room for two at once wherever two are left
                for rest in self.columns(count - 1, {**left, name: left[name] - degree}):
                    yield [(name, degree)] + rest


def planned(case, cluster):
    """What the benchmark says of a case: (iterations a second, gap, plan)."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "random-case.json")
        path.write_text(json.dumps(case))
        plan = pathlib.Path(directory, "plan.json")
        printed = subprocess.run([BENCH, "--case", path, "--cluster", ",".join(f"{name}={count}" for name, count in cluster.items()), "--plan", plan,
                                  "--json"], check=True, stdout=subprocess.PIPE)
        rows = {row["metric"]: row["ours"] for row in json.loads(printed.stdout)}
        return rows["iterations_per_second"], rows["gap"], json.loads(plan.read_text())


def cluster_of(case, seed, devices):
    draw = random.Random(seed)
    counts = {name: 1 for name in case["devices"]}
    for _ in range(devices - len(counts)):
        counts[draw.choice(list(counts))] += 1
    return counts


class PublishedCaseTest(unittest.TestCase):
    def test_plans_are_scored_by_the_published_formula(self):
        unlike = 0
        for seed in range(12):
            case = random_case(seed, 1 + seed % 3)
            cluster = cluster_of(case, seed, 4 + 5 * seed)
            with self.subTest(seed=seed, cluster=cluster):
                iterations, gap, plan = planned(case, cluster)
                cuts, replicas = shape_of(plan)
                unlike += len(set(map(tuple, replicas))) > 1
                self.assertEqual([first for first, _ in cuts] + [LAYERS], [0] + [end for _, end in cuts])
                self.assertAlmostEqual(1 / iterations, Judge(case).step(cuts, replicas, plan["micro_batch"]), delta=1e-9 / iterations)
                for name, count in cluster.items():
                    used = sum(degree for own in replicas for type_name, degree in own if type_name == name)
                    self.assertEqual(used + plan["left_out"].get(name, 0), count)
                self.assertLessEqual(gap, 1e-9)
        self.assertGreaterEqual(unlike, 1)

    def test_no_plan_of_a_small_cluster_is_quicker(self):
        for seed in range(16):
            case = random_case(200 + seed, 2 + seed % 2)
            cluster = cluster_of(case, seed, 4 + seed % 2)
            with self.subTest(seed=seed, cluster=cluster):
                iterations, gap, _ = planned(case, cluster)
                self.assertAlmostEqual(1 / iterations, EveryPlan(case, cluster).least, delta=1e-9 / iterations)
                self.assertLessEqual(gap, 1e-9)

    def test_no_plan_of_the_mixed_integer_program_is_quicker(self):
        if not mixed_integer.solver():
            self.assertNotIn("glpk", os.environ.get("MOTLEY_REQUIRE", "").split(","))
            self.skipTest("no glpsol (glpk-utils)")
        for seed, devices in enumerate((6, 5, 8, 12, 16, 20, 24, 32, 32, 32)):
            case = random_case(100 + seed, 2 + seed % 2)
            cluster = cluster_of(case, seed, devices)
            with self.subTest(seed=seed, cluster=cluster):
                iterations, _, plan = planned(case, cluster)
                alike = plan["search"]["alike_step_seconds"]
                self.assertAlmostEqual(alike, mixed_integer.least_step(Judge(case), cluster, BATCHES, DEGREES), delta=1e-6 * alike)
                self.assertLessEqual(1 / iterations, alike)


if __name__ == "__main__":
    unittest.main()
