"""Nothing that others wrote drives the terminal or forges a line."""

import json
from datetime import UTC, datetime

import pytest

from durable.cli.commands.audit import print_events
from durable.cli.render.output import print_error, print_json, print_lines, results
from durable.cli.render.tables import print_table
from durable.cli.render.visible import in_one_cell, visible
from durable.model.placement.records import AuditEvent

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202egnp.exe\u2066\x7f\u2028[bold]b[/]"
SHOWN = r"a\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202egnp.exe\u2066\x7f\u2028[bold]b[/]"


def test_what_is_hidden_is_written_out_and_the_rest_stays() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("two\nlines, ünïcode ✓ 日本") == "two\nlines, ünïcode ✓ 日本"
    assert in_one_cell("a\nb\tc") == r"a\nb\tc"
    assert visible("\ud800") == r"\ud800"


def test_tables_lines_errors_and_markup_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("Actor", "Reason"), [(HOSTILE, "x\ny")])
    print_lines([HOSTILE + "\nforged"])
    results.print(HOSTILE, markup=False)
    print_error(HOSTILE)
    captured = capsys.readouterr()
    assert captured.out.count(SHOWN) == 3
    assert SHOWN in captured.err
    assert r"x\ny" in captured.out
    assert r"\nforged" in captured.out
    assert all(one.isprintable() or one == "\n" for one in captured.out + captured.err)


def test_json_says_the_same_in_visible_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"actor": HOSTILE + "\ud800\n"})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"actor": HOSTILE + "\ud800\n"}
    assert all(one.isprintable() or one == "\n" for one in shown)


def test_a_senders_name_forges_no_line_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    forged = json.dumps({"actor": "x\n2030-01-01 00:00:00Z global 1 root", "reason": "\x1b[2J"})
    event = AuditEvent.model_validate(
        {
            "chain": "global", "sequence": 1, "at": datetime(2030, 1, 1, tzinfo=UTC),
            "actor": "controller:messages", "database_role": "durable_workload",
            "action": "reject message hold", "object": "placement/risk/api/g1/east",
            "before": None, "after": {"payload": forged}, "hash": "",
        }
    )  # fmt: skip
    print_events([event])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert len(lines) == 3, "head, rule and one event"
    assert r"sent by x\n2030-01-01 00:00:00Z global 1 root: \x1b[2J" in lines[-1]
