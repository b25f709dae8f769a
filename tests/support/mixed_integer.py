"""Equal pipelines of like replicas under a closed form as a mixed integer program in CPLEX LP format, solved by glpsol: which stages there are, by their
place from the end, is a path of binary variables."""

import pathlib
import shutil
import subprocess
import tempfile


def solver():
    return shutil.which("glpsol")


class _Program:
    """The stages of one shape (micro-batch, number of replicas)."""

    def __init__(self, judge, cluster, batch, replicas, degrees):
        self.judge, self.cluster, self.batch, self.replicas = judge, cluster, batch, replicas
        layers = len(judge.layers)
        configs = [(name, degree) for name, count in cluster.items() for degree in degrees
                   if degree * replicas <= count and (name, batch, degree) in judge.profiles]
        stages = [(first, end, config) for first in range(layers) for end in range(first + 1, layers + 1) for config in configs]
        most = min(layers, sum(count // replicas for count in cluster.values()))
        self.nodes = [(stage, place) for place in range(1, most + 1) for stage in stages
                      if judge.fits(stage, batch, place) and (place == 1) == (stage[1] == layers)]
        there = set(self.nodes)
        by_first = {}
        for stage, place in self.nodes:
            by_first.setdefault((stage[0], place), []).append(stage)
        # Of a stage and the one after it.
        self.arcs = [(stage, after, place) for stage, place in self.nodes if place > 1 for after in by_first.get((stage[1], place - 1), [])
                     if (after, place - 1) in there]
        self.places = range(1, most + 1)
        self.node = {node: f"n{number}" for number, node in enumerate(self.nodes)}
        self.arc = {arc: f"a{number}" for number, arc in enumerate(self.arcs)}

    def busy(self, place):
        """Terms of what the stage at a place does for a micro-batch."""
        terms = [(self.judge.compute(stage, self.batch), self.node[stage, at]) for stage, at in self.nodes if at == place]
        for stage, after, at in self.arcs:
            if at == place:  # what goes out of it
                weight = 1 if stage[0] > 0 or place <= 3 else 2
                terms.append((weight * self.judge.output(stage[1] - 1, self.batch, stage[2], after[2]), self.arc[stage, after, at]))
            if at == place + 1:  # what comes into it
                weight = 2 if place == 1 else 1
                terms.append((weight * self.judge.output(after[0], self.batch, after[2], stage[2]), self.arc[stage, after, at]))
        return terms

    def text(self):
        def line(terms):
            sums = {}
            for value, name in terms:
                sums[name] = sums.get(name, 0) + value
            return " ".join(f"{'+' if value >= 0 else '-'} {abs(value):.17g} {name}" for name, value in sums.items() if value)

        passes = self.judge.passes(self.batch, self.replicas)
        rows = [line([(1, self.node[node]) for node in self.nodes if node[1] == 1]) + " = 1",
                line([(1, self.node[node]) for node in self.nodes if node[0][0] == 0]) + " = 1"]
        into, out = {}, {}
        for stage, after, place in self.arcs:
            out.setdefault((stage, place), []).append((-1, self.arc[stage, after, place]))
            into.setdefault((after, place - 1), []).append((-1, self.arc[stage, after, place]))
        for node in self.nodes:
            if node[1] > 1:  # one stage comes after it
                rows.append(line([(1, self.node[node])] + out.get(node, [])) + " = 0")
            if node[0][0] > 0:  # one comes before it
                rows.append(line([(1, self.node[node])] + into.get(node, [])) + " = 0")
        for place in self.places:
            rows.append(line([(1, "busiest")] + [(-value, name) for value, name in self.busy(place)]) + " >= 0")
            at = [node for node in self.nodes if node[1] == place]
            rows.append(line([(1, "update")] + [(-self.judge.update(node[0], self.batch), self.node[node]) for node in at]) + " >= 0")
            rows.append(line([(1, "sum")] + [(-self.judge.allreduce(node[0], self.replicas), self.node[node]) for node in at]) + " >= 0")
        for name, count in self.cluster.items():
            used = [(node[0][2][1] * self.replicas, self.node[node]) for node in self.nodes if node[0][2][0] == name]
            if used:
                rows.append(line(used) + f" <= {count}")
        costs = [(passes - 1, "busiest"), (1, "update"), (1, "sum")] + [term for place in self.places for term in self.busy(place)]
        binaries = list(self.node.values()) + list(self.arc.values())
        return "Minimize\n step: " + line(costs) + "\nSubject To\n" + "\n".join(f" r{i}: {row}" for i, row in enumerate(rows)) + \
            "\nBinary\n " + "\n ".join(binaries) + "\nEnd\n"

    def least(self):
        """Seconds of the quickest plan; None where there is none."""
        if not any(node[1] == 1 for node in self.nodes) or not any(node[0][0] == 0 for node in self.nodes):
            return None
        with tempfile.TemporaryDirectory() as directory:
            program, answer = pathlib.Path(directory, "p.lp"), pathlib.Path(directory, "answer")
            program.write_text(self.text())
            subprocess.run([solver(), "--lp", program, "--cuts", "-w", answer], check=True, stdout=subprocess.DEVNULL)
            # "s mip ROWS COLUMNS STATUS VALUE", o: optimal, n: nothing is feasible
            status, value = next(line.split()[4:6] for line in answer.read_text().splitlines() if line.startswith("s "))
            if status == "n":
                return None
            assert status == "o", status
            return float(value)


def least_step(judge, cluster, batches, degrees):
    """Over all shapes, however many replicas."""
    steps = [_Program(judge, cluster, batch, replicas, degrees).least() for batch in batches for replicas in range(1, sum(cluster.values()) + 1)]
    return min(step for step in steps if step is not None)
