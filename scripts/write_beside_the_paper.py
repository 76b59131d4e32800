"""Puts the paper's numbers beside those of run stores, into docs/src/beside-the-paper.md.

    monosplit evaluate experiments/paper-vgg16.toml --data pets --store stores/paper-vgg16.sqlite
    python scripts/write_beside_the_paper.py stores

The folder holds stores named after their experiment files, each as `.sqlite` or `.sqlite.xz`; those that are kept are in
experiments/results. A line `<!-- NAME -->` of the page is followed by the table of that name, up to `<!-- end -->`; tables whose
stores are not there stay as they are, and so does all text between tables. The paper's numbers are in scripts/paper_tables.
"""

import collections
import csv
import lzma
import math
import re
import sqlite3
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/src/beside-the-paper.md"
BLOCK = re.compile(r"(<!-- (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
SHORT = {
    "selectivity": "Selectivity ↓",
    "attribution-localisation": "Localisation ↑",
    "pointing-game": "Pointing ↑",
    "pixel-flipping:auc=5": "Flipping @5 ↑",
    "pixel-flipping:auc=20": "Flipping @20 ↑",
    "max-sensitivity": "Max sensitivity ↓",
}
METRICS = list(SHORT)
ALPHAS = ["0.5", "0.45", "0.4", "0.35", "0.3", "0"]

Member = collections.namedtuple("Member", "stage kind family title layer absolute place values")


def paper(name):
    with open(HERE / "paper_tables" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def number(text):
    return float(text) if text else None


class Store:
    """The members of all stages of a run, each with the values of its metrics by image."""

    def __init__(self, path):
        self.path = path
        with tempfile.TemporaryDirectory() as folder:
            if path.suffix == ".xz":
                unpacked = Path(folder) / "store.sqlite"
                unpacked.write_bytes(lzma.decompress(path.read_bytes()))
                path = unpacked
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            self.rows = connection.execute("SELECT count(*) FROM result").fetchone()[0]
            self.members = self.read(connection)
            connection.close()

    @staticmethod
    def read(connection):
        values = collections.defaultdict(lambda: collections.defaultdict(dict))
        rows = connection.execute(
            "SELECT e.id, s.position, r.configuration, m.name, p.hash, r.value FROM stage s"
            " JOIN experiment e ON e.id = s.experiment"
            " JOIN stage_metric a ON a.experiment = e.id AND a.stage = s.position JOIN metric m ON m.id = a.metric"
            " JOIN member b ON b.experiment = e.id AND b.stage = s.position"
            " JOIN experiment_image i ON i.experiment = e.id AND i.part = s.part JOIN image p ON p.id = i.image"
            " JOIN result r ON r.model = e.model AND r.seed = e.seed AND r.configuration = b.configuration"
            " AND r.image = i.image AND r.metric = a.metric"
        )
        for experiment, stage, configuration, metric, image, value in rows:
            values[experiment, stage, configuration][metric][image] = value
        found = connection.execute(
            "SELECT e.id, s.position, c.id, s.name, s.kind, b.family, b.title, c.layer, c.absolute, b.place FROM member b"
            " JOIN stage s ON s.experiment = b.experiment AND s.position = b.stage JOIN experiment e ON e.id = s.experiment"
            " JOIN configuration c ON c.id = b.configuration ORDER BY e.id, s.position, b.position"
        )
        return [Member(*rest, values=values[e, s, c]) for e, s, c, *rest in found]

    def of(self, kind):
        return [member for member in self.members if member.kind == kind]


def measured(member, metric):
    """The values of a metric by image; of one that was asked for with other options, such as larger patches, where it is alone."""
    found = member.values.get(metric)
    other = [name for name in member.values if name.split(":")[0] == metric]
    return found if found is not None else member.values[other[0]] if len(other) == 1 else {}


def mean(member, metric):
    """The mean over the images that have a value, and how many have."""
    found = [value for value in measured(member, metric).values() if value is not None]
    return (math.fsum(found) / len(found), len(found)) if found else (None, 0)


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for at in order[start:stop]:
            result[at] = (start + stop - 1) / 2
        start = stop
    return result


def spearman(pairs):
    """Spearman's rank correlation of pairs; none of fewer than three or of constants."""
    if len(pairs) < 3:
        return None
    a, b = (ranks(list(side)) for side in zip(*pairs))
    centre = (len(a) - 1) / 2
    over = sum((x - centre) * (y - centre) for x, y in zip(a, b))
    under = math.sqrt(sum((x - centre) ** 2 for x in a) * sum((y - centre) ** 2 for y in b))
    return over / under if under else None


def shown(value, digits=3):
    return "–" if value is None else f"{value:.{digits}f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def images(members):
    counts = [len(found) for member in members for found in member.values.values()]
    return f"{min(counts)} to {max(counts)} images" if counts and min(counts) != max(counts) else f"{max(counts, default=0)} images"


def finished(members):
    """Those that were measured on every image by every metric; a run that was stopped has others."""
    most = max((len(found) for member in members for found in member.values.values()), default=0)
    asked = {name for member in members for name in member.values}
    return [m for m in members if set(m.values) == asked and min(map(len, m.values.values()), default=0) == most]


def beside(published, member_of, metrics):
    """Rows `paper / ours`, and the rank correlation of the rows under each metric."""
    rows, pairs = [], {metric: [] for metric in metrics}
    for line in published:
        member = member_of(line)
        cells = [line["title"] + (f", {line['layer']}" if line.get("layer") else "")]
        for metric in metrics:
            theirs, ours = number(line[metric]), mean(member, metrics[metric])[0] if member else None
            if theirs is not None and ours is not None:
                pairs[metric].append((theirs, ours))
            cells.append(f"{shown(theirs)} / {shown(ours)}")
        rows.append(cells)
    correlation = [shown(spearman(pairs[metric]), 2) for metric in metrics]
    return rows + [["**rank correlation**"] + [f"**{value}**" for value in correlation]]


def comparison(store, name):
    members = {member.title: member for member in store.of("comparison")}
    rows = beside(paper(name), lambda line: members.get(line["title"]), {metric: metric for metric in METRICS})
    title = f"The paper's number / ours, {images(members.values())}."
    return f"{title}\n\n" + table(["Row"] + list(SHORT.values()), rows)


def readings(store, _):
    rows = []
    for member in store.of("comparison"):
        if member.family == "Readings":
            rows.append([member.title] + [shown(mean(member, metric)[0]) for metric in METRICS])
    return table(["Reading"] + list(SHORT.values()), rows)


def prediction(store, _):
    """What changes where the predicted class is explained: means of the same images, and how rows are ordered."""
    label = Store(found_store(store.path.parent, store.path.name.split(".")[0].removesuffix("-prediction")))
    labelled = {member.title: member for member in label.of("comparison")}
    rows, pairs = [], {metric: [] for metric in METRICS}
    for member in store.of("comparison"):
        other, cells = labelled.get(member.title), [member.title]
        for metric in METRICS:
            before, after = measured(other, metric) if other else {}, measured(member, metric)
            both = [(before[image], after[image]) for image in before.keys() & after.keys()]
            both = [pair for pair in both if None not in pair]
            if both:
                theirs, ours = (math.fsum(side) / len(both) for side in zip(*both))
                pairs[metric].append((theirs, ours))
                cells.append(f"{theirs:.3f} → {ours:.3f}")
            else:
                cells.append("–")
        rows.append(cells)
    rows.append(["**rank correlation**"] + [f"**{shown(spearman(pairs[metric]), 2)}**" for metric in METRICS])
    return "Label → prediction, on the images that both have.\n\n" + table(["Row"] + list(SHORT.values()), rows)


def similarity(member, name):
    key = next((key for key in member.values if key.endswith(f"similarity={name}")), None)
    return mean(member, key)[0] if key else None


def randomisation(store, _):
    members = {(member.title, member.layer): member for member in store.of("sanity")}
    rows, pairs = [], collections.defaultdict(list)
    for line in paper("randomisation"):
        member, cells = members.get((line["title"], line["layer"])), [f"{line['title']} {line['layer']}".strip()]
        for name in ["hog", "spearman", "ssim"]:
            theirs, ours = number(line[name]), similarity(member, name) if member else None
            if ours is not None:
                pairs[name].append((theirs, ours))
            cells.append(f"{shown(theirs)} / {shown(ours)}")
        rows.append(cells)
    rows.append(["**rank correlation**"] + [f"**{shown(spearman(pairs[name]), 2)}**" for name in ["hog", "spearman", "ssim"]])
    return f"{images(members.values())}; all three are lower for a map that depends on the weights.\n\n" + table(
        ["Row", "HOG", "Spearman", "SSIM"], rows
    )


def similarities(store, _):
    names = ["hog", "spearman", "spearman-absolute", "ssim"]
    members = store.of("sanity")
    rows = [[f"{m.title}, {m.layer}"] + [shown(similarity(m, name)) for name in names] for m in members]
    return f"{images(members)}.\n\n" + table(["Reading", "HOG", "Spearman", "Spearman of magnitudes", "SSIM"], rows)


def by_value(store, stage):
    """Members of an ablation by title, then value."""
    found = collections.defaultdict(dict)
    for member in store.of("ablation"):
        if stage(member.stage):
            place = member.place
            found[member.title][str(float(place)).removesuffix(".0") if re.fullmatch(r"[\d.]+", place) else place] = member
    return found


def alpha(store, name):
    stabiliser = {"alpha": "scale", "alpha-none": "none", "alpha-shift": "shift"}[name]
    stage = {"scale": "ablation of α", "none": "ablation of α without stabiliser", "shift": "ablation of α with shift"}[stabiliser]
    members = by_value(store, stage.__eq__)
    rows = []
    for line in paper("alpha"):
        if line["stabiliser"] != stabiliser:
            continue
        cells, pairs = [f"{line['title']}: {SHORT[line['metric']]}"], []
        for value in ALPHAS:
            member = members.get(line["title"], {}).get(value)
            ours = mean(member, line["metric"])[0] if member else None
            if ours is not None:
                pairs.append((float(line[value]), ours))
            cells.append(f"{shown(float(line[value]))} / {shown(ours)}")
        rows.append(cells + [shown(spearman(pairs), 2)])
    every = [member for of in members.values() for member in of.values()]
    return f"{images(every)}.\n\n" + table(["Row"] + [f"α {value}" for value in ALPHAS] + ["rank correlation"], rows)


def splitlrp(store, _):
    members = by_value(store, "ablation of stabiliser".__eq__)
    every = [member for of in members.values() for member in of.values()]
    if len(finished(every)) < len(every):
        return None
    member_of = lambda line: members.get(line["title"], {}).get(line["stabiliser"])
    rows = beside(paper("splitlrp"), member_of, {metric: metric for metric in METRICS})
    for row, line in zip(rows, paper("splitlrp")):
        row[0] += f", {line['stabiliser']}"
    return f"{images(every)}.\n\n" + table(["Row"] + list(SHORT.values()), rows)


def ablations(store, _):
    """All ablations of a store: one row for each member and value."""
    metrics = ["pointing-game", "attribution-localisation", "max-sensitivity", "pixel-flipping:auc=20"]
    rows = []
    for member in store.of("ablation"):
        name = f"{member.title}, {member.stage.removeprefix('ablation of ')}: {member.place}"
        rows.append([name] + [shown(mean(member, metric)[0]) for metric in metrics])
    return f"{images(store.of('ablation'))}.\n\n" + table(["Row"] + [SHORT[metric] for metric in metrics], rows)


def seconds(store, name):
    column = name.removeprefix("timing-")
    members = {member.title: member for member in store.of("timing")}
    rows = []
    for line in paper("seconds"):
        member = members.get(line["title"])
        ours = mean(member, "seconds-per-map")[0] if member else None
        rows.append([line["title"], line[column], shown(ours, 4)])
    return f"Seconds for one map, {images(members.values())}.\n\n" + table(["Method", "paper", "ours"], rows)


def layers(store, _):
    """Each curve by layer: one row for each layer, one column for each curve; a dash where not every image was measured."""
    members = finished(store.of("layers"))
    titles = list(dict.fromkeys(m.title for m in members))
    places = list(dict.fromkeys(m.layer for m in store.of("layers")))
    parts = []
    for metric in dict.fromkeys(name for member in members for name in member.values):
        at = {(m.title, m.layer): mean(m, metric)[0] for m in members}
        rows = [[place] + [shown(at.get((title, place))) for title in titles] for place in places]
        title = next((SHORT[name] for name in SHORT if metric.split(":")[0] == name), SHORT.get(metric, metric))
        parts.append(f"{title}, {images(members)}:\n\n" + table(["Layer"] + titles, rows))
    return "\n\n".join(parts)


def counts(_, __):
    """The numbers of images with which the paper's pointing game is consistent: a share of N images is a whole number over N."""
    rows = []
    for stabiliser in ["scale", "none", "shift"]:
        shares = [
            float(line[value])
            for line in paper("alpha")
            if line["stabiliser"] == stabiliser and line["metric"] == "pointing-game"
            for value in ALPHAS
        ]
        fits = {n: sum(abs(round(share * n) / n - share) <= 5.1e-5 for share in shares) for n in (497, 566)}
        rows.append([f"α table, {stabiliser}", str(len(shares)), str(fits[566]), str(fits[497])])
    return table(["Pointing game in", "values", "whole over 566", "whole over 497"], rows)


def named(text):
    """A method's name and its options but the default α, as stores write them."""
    name, _, options = text.partition(":")
    return name, ",".join(sorted(option for option in options.split(",") if option and option != "alpha=0.4"))


def kept(_, __):
    """The paper's rows on VGG16 in the full run that is kept in experiments/results, whose tables have other names in its version."""
    metrics = [metric for metric in METRICS if metric not in ("selectivity", "max-sensitivity")]
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "store.sqlite"
        unpacked.write_bytes(lzma.decompress((HERE.parent / "experiments/results/vgg16-comparison-full.sqlite.xz").read_bytes()))
        connection = sqlite3.connect(unpacked)
        means = connection.execute(
            "SELECT c.method, c.options, c.layer, c.absolute, m.name, avg(r.value), count(DISTINCT r.image) FROM result r"
            " JOIN configuration c ON c.id = r.configuration JOIN metric m ON m.id = r.metric GROUP BY r.configuration, r.metric"
        )
        found = collections.defaultdict(dict)
        for method, options, layer, absolute, metric, value, count in means:
            key = method, ",".join(sorted(option for option in options.split(",") if option)), layer, bool(absolute)
            found[key][metric] = value, count
        connection.close()
    experiment = tomllib.loads((HERE.parent / "experiments/paper-vgg16.toml").read_text())
    rows, pairs, split = [], {metric: [] for metric in metrics}, {metric: [] for metric in metrics}
    for line in paper("vgg16"):
        method = next(method for method in experiment["method"] if method["title"] == line["title"])
        name, options = named(method["method"])
        layer, absolute = method.get("layers", ""), method.get("absolute") == "yes"
        near = name, "", layer.removesuffix(":out"), absolute
        key = next((key for key in [(name, options, layer, absolute), near] if key in found), None)
        if key is None:
            continue
        count = max(count for _, count in found[key].values())
        cells = [line["title"] + (" †" if key[:3] != (name, options, layer) else "") + f" ({count})"]
        for metric in metrics:
            theirs, ours = number(line[metric]), found[key][metric][0]
            pairs[metric].append((theirs, ours))
            if name.startswith("split"):
                split[metric].append((theirs, ours))
            cells.append(f"{shown(theirs)} / {shown(ours)}")
        rows.append(cells)
    for title, of in [("all rows", pairs), ("the split's rows", split)]:
        rows.append([f"**rank correlation, {title}**"] + [f"**{shown(spearman(of[metric]), 2)}**" for metric in metrics])
    note = "The paper's number / ours, with the number of pictures. †: what enters the layer and the published form of the method."
    return f"{note}\n\n" + table(["Row"] + [SHORT[metric] for metric in metrics], rows)


TABLES = {
    "paper-vgg16": [("vgg16", comparison), ("vgg16-readings", readings)],
    "paper-resnet18": [("resnet18", comparison), ("resnet18-readings", readings)],
    "paper-vgg16-prediction": [("vgg16-prediction", prediction)],
    "paper-resnet18-prediction": [("resnet18-prediction", prediction)],
    "sanity-check-full": [("randomisation", randomisation)],
    "sanity-readings": [("randomisation-readings", similarities)],
    "shift-readings": [("shift-randomisation", similarities), ("shift-alpha", ablations)],
    "alpha-ablation-full": [("alpha", alpha)],
    "stabiliser-ablation-full": [("alpha-none", alpha), ("alpha-shift", alpha), ("splitlrp", splitlrp)],
    "layer-dependence-full": [("layers", layers)],
    "timing-vgg16-full": [("timing-vgg16", seconds)],
    "timing-resnet18-full": [("timing-resnet18", seconds)],
    "disentanglement": [("disentanglement", layers)],
    "disentanglement-resnet18": [("disentanglement-resnet18", layers)],
}


def found_store(folder, experiment):
    """The store of an experiment; the name of a machine may stand before its ending, as in `NAME.h200.sqlite.xz`."""
    ends = ["sqlite", "sqlite.xz", "*.sqlite", "*.sqlite.xz"]
    return next((path for end in ends for path in sorted(folder.glob(f"{experiment}.{end}"))), None)


def main():
    folder = Path(sys.argv[1])
    written = {"counts": counts(None, None), "vgg16-kept": kept(None, None)}
    for experiment, tables in TABLES.items():
        path = found_store(folder, experiment)
        if path is None:
            print(f"{experiment}: no store in {folder}; its tables stay as they are", file=sys.stderr)
            continue
        store = Store(path)
        print(f"{experiment}: {store.rows} rows")
        written |= {name: text for name, of in tables if (text := of(store, name))}
    fill = lambda found: f"{found[1]}\n{written[found[2]]}\n\n{found[3]}" if found[2] in written else found[0]
    text = BLOCK.sub(fill, PAGE.read_text())
    for name in written:
        if f"<!-- {name} -->" not in text:
            print(f"the page has no place for the table {name}", file=sys.stderr)
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
