"""The site as `make docs` builds it: what the search finds, links, titles, and the list of pages for search engines.

Skipped where MkDocs is not installed: run `make docs` once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "http://localhost:8000/kafka/"

pytestmark = pytest.mark.thorough

QUERIES = {
    # Words that pages say in another way.
    "monitoring": "metrics",
    "backpressure": "writing",
    "mtls": "security",
    "azure": "managed-kafka",
    "replay": "reading",
    "shutdown": "shutdown",
    "graceful shutdown": "shutdown",
    "dead letter": "workers",
    "consumer lag": "metrics",
    "outbox": "outbox",
    "transactional outbox": "outbox",
    "celery": "blocking",
    "flask": "blocking",
    "jupyter": "blocking",
    "airflow": "read-to-the-end",
    "deadlock": "logging",
    "docker compose": "deployment",
    "getting started": "tutorial",
    "fastapi": "examples",
    "queue": "share-groups",
    # Words of guides that the reference and the pages for contributors use as well.
    "retry": "workers",
    "reset offsets": "reading",
    "seek": "reading",
    "pause partition": "reading",
    "concurrency": "workers",
    "static membership": "groups",
    "pytest fixture": "testing",
    "rolling restart": "rebalancing",
    "rebalance": "rebalancing",
    "blocked event loop": "blocked-loops",
    "tls certificate": "security",
    "msk iam": "managed-kafka",
    "exactly once": "transactions",
    "postgresql": "into-a-database",
    "schema registry": "schemas",
    "pydantic": "schemas",
    "kubernetes": "deployment",
    "prometheus": "metrics",
    "create topic": "admin",
    "pyspark": "spark",
    "foreachbatch": "spark-recipes",
    "migrate from aiokafka": "migrating-from-aiokafka",
    "confluent_kafka": "migrating-from-confluent-kafka",
    "install": "installation",
    # Identifiers in code.
    "sasl_ssl": "security",
    "sasl_plain": "security",
    "create_topics": "admin",
    "max_poll_interval": "rebalancing",
    "send_nowait": "reference-producer",
    "bootstrap_servers": "connections",
    "EmbeddedCluster": "embedded-cluster",
}
"""What people type, and the page that answers it."""

ANYWHERE = {"sasl_plain", "bootstrap_servers", "exactly once"}
"""Words that answer on several pages: the page is one of the first five results. For all others it is the first."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="MkDocs is not installed; run: make docs")
    directory = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "SITE_URL": ADDRESS, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"  # ruff lays out signatures
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture(scope="module")
def results(site: Path) -> dict[str, list[str]]:
    """The pages that the search panel lists for each query: the theme's own worker answers, as in a browser."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("the search is JavaScript, and there is no Node.js here to run it")
    (worker,) = site.glob("assets/javascripts/workers/search.*.js")
    command = [node, str(Path(__file__).with_name("search.js")), str(worker), str(site / "search/search_index.json")]
    done = subprocess.run(command, input=json.dumps([*QUERIES]), capture_output=True, text=True, check=True)
    return {query: [page.strip("/") for page in pages] for query, pages in zip(QUERIES, json.loads(done.stdout))}


@pytest.mark.parametrize("query", QUERIES)
def test_the_search_finds_the_page_that_answers(results: dict[str, list[str]], query: str) -> None:
    first = 5 if query in ANYWHERE else 1
    assert QUERIES[query] in results[query][:first], f"found {results[query][:8]}; docs/pages.toml has words of pages"


class Head(HTMLParser):
    """Collects the title, the description, the links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title = self.description = ""
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "meta" and values.get("name") == "description":
            self.description = values["content"]
        elif tag in {"a", "link"} and "href" in values:
            self.links.append(values["href"])
        elif tag in {"img", "script"} and "src" in values:
            self.links.append(values["src"])
        self.in_title = tag == "title" and not self.title

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self.in_title = False


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Head]:
    """Each page, by its address."""
    return {
        urljoin(ADDRESS, path.relative_to(site).as_posix().removesuffix("index.html")): Head(path.read_text("utf-8"))
        for path in site.rglob("*.html")
        if path.name != "404.html"
    }


def test_each_page_has_a_title_and_a_description_of_its_own(pages: dict[str, Head]) -> None:
    assert len(pages) > 40
    for what in ("title", "description"):
        texts = [getattr(page, what) for page in pages.values()]
        assert all(texts)
        assert sorted(texts) == sorted(set(texts))


def test_no_link_within_the_site_is_dead(site: Path, pages: dict[str, Head]) -> None:
    assert sorted(dead_links(site, pages)) == []


def dead_links(site: Path, pages: dict[str, Head]) -> Iterator[str]:
    for address, page in pages.items():
        for link in page.links:
            target, _, anchor = urljoin(address, link).partition("#")
            if not target.startswith(ADDRESS):
                continue
            path = site / unquote(urlsplit(target).path.removeprefix(urlsplit(ADDRESS).path))
            if not path.exists() or (target in pages and anchor and unquote(anchor) not in pages[target].anchors):
                yield f"{address}: {link}"


def test_cells_of_a_table_name_their_columns_for_narrow_screens(site: Path) -> None:
    text = (site / "installation/index.html").read_text(encoding="utf-8")
    (row,) = re.findall(r"<tr>(?:(?!<tr>).)*?Windows x86-64.*?</tr>", text, re.DOTALL)
    assert re.findall(r'<td data-label="(.*?)"', row) == ["platform", "compiled", "plain Python"]


def test_search_engines_get_a_list_of_all_pages(site: Path, pages: dict[str, Head]) -> None:
    listed = (site / "sitemap.xml").read_text(encoding="utf-8")
    assert [address for address in pages if f"<loc>{address}</loc>" not in listed] == []


@pytest.mark.parametrize(
    "page, name, methods, tables",
    [
        ("reference-producer", "Producer", ["send", "send_many", "transaction"], ["every-client", "producer"]),
        ("reference-consumer", "Consumer", ["poll", "seek", "commit"], ["every-client", "consumer", "group"]),
        ("reference-consumer", "ShareConsumer", ["accept", "poll"], ["every-client", "share-group"]),
        ("reference-admin", "Admin", ["close", "diagnose"], ["every-client"]),
    ],
)
def test_a_class_begins_with_a_short_signature_and_its_methods(
    site: Path, page: str, name: str, methods: list[str], tables: list[str]
) -> None:
    text = (site / page / "index.html").read_text(encoding="utf-8")
    (entry,) = re.findall(
        rf'<h3 id="aiokafka_lite\.[\w.]*\.{name}".*?(?=<div class="doc doc-children")', text, re.DOTALL
    )
    signature, _, rest = entry.partition("</pre>")
    assert re.sub(r"<[^>]+>", "", signature).count("\n") <= 25
    table = rest.partition("</table>")[0]
    assert [method for method in methods if f">{method}</" not in table] == []
    assert re.findall(r'href="\.\./settings/#([\w-]+)"', rest) == tables
