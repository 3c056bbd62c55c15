"""Tables on terminals of any width: nothing is cut."""

import pytest

from durable.cli.render.output import results
from durable.cli.render.tables import print_table, show_rounded
from durable.model.resources import Resources

from ..terminal import Terminal

HEADS = ("Workload", "Region", "State", "Generation", "Priority", "Waits for")
NAME = "analytics/a-workload-with-a-rather-long-name"
REASON = (
    "Tenant analytics has 2 cpu of its grant left in eu-central, which is enough for 0 of 2 slots "
    "of 8 cpu; wait until it uses less, or ask for a larger grant. (grant)"
)
ROW = (NAME, "eu-central", "pending", "1", "300", REASON)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120, 200])
def test_no_word_is_cut_or_broken(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "width", columns)
    print_table(HEADS, [ROW])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= max(columns, len(NAME))
    assert "…" not in shown
    assert {word for cell in ROW for word in cell.split()} <= set(shown.split())


def test_a_table_stays_one_where_sentences_can_fold(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "width", 80)
    print_table(("Region", "Waits for"), [("north", REASON), ("south", "")])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].split() == ["Region", "Waits", "for"]
    assert lines[-1] == "south"
    assert len(lines) == 6


@pytest.mark.parametrize("kind", ["nodes", "tenants", "regions"])
def test_names_are_whole_at_80_columns(
    terminal: Terminal, fleet_file: object, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert terminal.run("fleet", "load", "-f", str(fleet_file)) == 0, terminal.stderr
    listed = terminal.json("get", kind)[kind]
    monkeypatch.setattr(results, "width", 80)
    assert terminal.run("get", kind) == 0, terminal.stderr
    assert "…" not in terminal.stdout
    named = {row[kind.removesuffix("s")] for row in listed}
    assert named <= set(terminal.stdout.split())


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (Resources.of(145_600, 163_584), "145.6 cpu, 159.8Gi"),
        (Resources.of(2_000, 4_096, 1), "2 cpu, 4Gi, 1 gpu"),
        (Resources.of(500, 512), "500m cpu, 512Mi"),
        (Resources.of(0, 0, 2), "0 cpu, 2 gpu"),
        (Resources.of(1_000, 2 * 1024**2), "1 cpu, 2Ti"),
        (Resources.of(0), "none"),
    ],
)
def test_an_amount_is_shown_in_the_shortest_unit(amount: Resources, shown: str) -> None:
    assert show_rounded(amount) == shown
