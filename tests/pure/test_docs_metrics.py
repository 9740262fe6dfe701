"""docs/metrics.md has every instrument; the dashboard for Grafana and the alert rules only names that are exported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import list_events
import list_metrics
import pytest

from aiokafka_lite.metrics.instruments import INSTRUMENTS
from tests.pure.documents import ROOT

DASHBOARD = ROOT / "docs" / "grafana" / "kafka.json"
CLUSTER = ROOT / "docs" / "grafana" / "cluster.json"
ALERTS = ROOT / "docs" / "grafana" / "alerts.yml"


def test_the_page_has_the_present_instruments() -> None:
    assert list_metrics.PAGE.read_text(encoding="utf-8") == list_metrics.page(), "run: python docs/list_metrics.py"


def test_the_page_about_logging_has_the_present_events() -> None:
    assert list_events.PAGE.read_text(encoding="utf-8") == list_events.page(), "run: python docs/list_events.py"
    assert list_events.table().count("\n") > 10


def test_each_instrument_has_a_name_of_its_own() -> None:
    assert len({instrument.prometheus_name for instrument in INSTRUMENTS}) == len(INSTRUMENTS)
    assert all(re.fullmatch(r"kafka_[a-z0-9_]+", instrument.prometheus_name) for instrument in INSTRUMENTS)


def test_each_metric_of_the_dashboard_is_exported() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expressions += [variable["query"] for variable in dashboard["templating"]["list"]]
    named = {name for expression in expressions for name in re.findall(r"\bkafka_\w+", expression)}
    assert len(named) > 20
    assert named <= {instrument.prometheus_name for instrument in INSTRUMENTS}


def test_each_metric_of_the_exporter_is_on_the_page_and_in_the_dashboard_of_the_cluster() -> None:
    source = (ROOT / "aiokafka_lite" / "metrics" / "cluster.py").read_text(encoding="utf-8")
    exported = set(re.findall(r'"(kafka_\w+)"', source))
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(kafka_\w+)`", page)) == exported
    assert set(re.findall(r"\bkafka_\w+", CLUSTER.read_text(encoding="utf-8"))) <= exported


@pytest.mark.parametrize("path", [DASHBOARD, CLUSTER], ids=lambda path: str(path.name))
def test_the_panels_of_the_dashboard_do_not_overlap(path: Path) -> None:
    dashboard = json.loads(path.read_text(encoding="utf-8"))
    occupied: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        rows, columns = range(place["y"], place["y"] + place["h"]), range(place["x"], place["x"] + place["w"])
        cells = {(row, column) for row in rows for column in columns}
        assert max(columns) < 24
        assert not cells & occupied, panel["title"]
        occupied |= cells


def test_each_metric_and_label_of_the_alert_rules_is_exported() -> None:
    rules = re.sub(r"#.*", "", ALERTS.read_text(encoding="utf-8"))
    exported = {instrument.prometheus_name: instrument for instrument in INSTRUMENTS}
    alerts = re.split(r"^ +- alert: ", rules, flags=re.MULTILINE)[1:]
    assert len(alerts) == 4
    for alert in alerts:
        names = set(re.findall(r"\bkafka_\w+", alert))
        assert names, alert
        assert names <= exported.keys(), alert
        grouped = {label for labels in re.findall(r"by \(([^)]*)\)", alert) for label in labels.split(", ")}
        labels = set.intersection(*(set(exported[name].labels) for name in names)) | {"job"}  # Prometheus adds the job
        assert grouped | set(re.findall(r"\$labels\.(\w+)", alert)) <= labels, alert


def test_the_alerts_fire_in_an_outage_and_not_in_health() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool comes with Prometheus, which is not installed")
    cases = ROOT / "tests" / "pure" / "alerts.yml"
    for command in (["check", "rules", ALERTS], ["test", "rules", cases]):
        run = subprocess.run([promtool, *command], capture_output=True, text=True, check=False, timeout=60)
        assert run.returncode == 0, run.stdout + run.stderr
