"""The text beside the numbers: the setting of a comparison, differences from the paper, and the scale."""

from collections.abc import Sequence
from pathlib import Path

from fedfa.learning.data import sent140
from fedfa.learning.models.registry import label
from fedfa.report.page import travelling
from fedfa.runs.run import Run
from fedfa_reproduction.base import Comparison, Results
from fedfa_reproduction.label_counts import kept_counts
from fedfa_reproduction.study import Study
from fedfa_reproduction.workloads import THE_PAPERS, Workload


def describe(comparison: Comparison, runs: Sequence[Run] = ()) -> str:
    """The setting of a comparison in a few words, with details from its runs."""
    experiment = comparison.experiment
    data, local, strategy, stop = experiment.data, experiment.local, experiment.strategy, experiment.stop
    clients = runs[0].manifest["num_clients"] if runs else data.clients
    model = runs[0].manifest["task"].partition("/")[2] if runs else label(experiment.model)
    split = f"Dirichlet alpha = {data.alpha:g}" if data.partition.startswith("dirichlet") else data.partition
    part = "" if data.fraction == 1 else f"{100 * data.fraction:g} % of the data, "
    epochs = f"{local.least_epochs} to {local.epochs}" if local.least_epochs else str(local.epochs)
    until = f"{stop.updates:,} updates" if stop.seconds is None else f"budget {stop.seconds:,.0f} virtual s"
    if comparison.most_updates:
        most = [f"{comparison.most_updates[waits]:,} updates" for waits in sorted(comparison.most_updates)]
        until += f", at most {' ('.join(most)}{' for strategies that wait)' if len(most) > 1 else ''}"
    return (
        f"{data.dataset}, {part}{clients} clients ({split}), {model}; "
        f"M_c = {strategy['concurrency']}, K = {strategy['window']}; E = {epochs}, batch {local.batch_size}, "
        f"lr {local.lr:g}, {local.optimizer}; {until}. {travelling(runs)}"
    ).rstrip()


def scale_note(study: Study, results: Results) -> str:
    changed = [text for text in study.overrides if not text.startswith("data.folder=")]
    more = f" Changed by --set: {', '.join(changed)}." if changed else ""
    if study.scale == "full":
        return f"{' '.join(['The sizes that the paper names.', *stand_ins(study, results)])}{more}"
    return (
        "Smoke scale: less data, a smaller model, an easier target. It shows that everything works and gives a first "
        f"idea of the order; only --scale full may be held against the paper's numbers.{more}"
    )


def stand_ins(study: Study, results: Results) -> list[str]:
    """Differences from the paper, a sentence each; taken from the runs themselves."""
    found = []
    for workload in study.workloads:
        own = [(comparison, runs) for comparison, runs in results if runs and _is_on(comparison, workload)]
        runs = [run for _, some in own for run in some]
        if workload.weights:
            used = {Path(run.config["model"]["weights"]).name for run in runs}
            for weights in sorted(used - {workload.weights[0]}):
                found.append(f"{workload.name}: the weights {weights} stand in for {workload.weights[0]}.")
        if workload.name == "sent140" and own:
            found += _part_of_sent140(study, own[0][0])
        if workload.name not in THE_PAPERS:
            found.append(f"{workload.name}: not in the paper.")
    return found


def _is_on(comparison: Comparison, workload: Workload) -> bool:
    return comparison.experiment.data.dataset == (workload.dataset or workload.name)


def _part_of_sent140(study: Study, comparison: Comparison) -> list[str]:
    if study.data:
        public = sent140.is_public(Path(study.data).expanduser())
        part = "sent140: a part of the data, with clients by the hour of posting instead of users."
        return [] if public else [part]
    counts = kept_counts(study, comparison.experiment)
    if counts is None:
        return []
    return [f"sent140: {counts['examples'].sum():,} training examples; the public data set has 1.6 million."]


def introduction(study: Study) -> str:
    more = ", and others where they are there" if len(study.all_seeds()) > len(study.seeds) else ""
    return (
        "Our numbers beside those of Xu et al., FedFa: A Fully Asynchronous Training Paradigm for Federated Learning, "
        f"IJCAI 2024. Scale: {study.scale}; {'seed' if len(study.seeds) == 1 else 'seeds'} "
        f"{', '.join(map(str, study.seeds))}{more}. Simulated by fedfa; times are virtual."
    )
