"""SQL on topics: the command ``sql``, and ``to_duckdb`` for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("duckdb")

import duckdb

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, KafkaError
from aiokafka_lite.queries import TopicRange, tables_of, to_duckdb
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine

ORDERS: list[bytes | None] = [
    b'{"city":"Bonn","amount":1.5,"id":1,"buyer":{"name":"Ada"},"tags":["a","b"]}',
    b'{"city":"Ulm","amount":2,"id":2}',
    b'{"city":"Bonn","amount":3,"id":12345678901,"late":true}',
    b"no json",
    b"\xff",
    None,
    b"[1]",
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    """A cluster with two topics that can be joined, and a third one that is empty."""
    with EmbeddedKafkaServer(1) as server:
        server.create_topic("orders", partitions=2)
        server.create_topic("cities.v1")
        server.create_topic("empty")
        for number, value in enumerate(ORDERS):
            server.produce("orders", value, key=b"k%d" % number, partition=number % 2)
        for name, country in (("Bonn", "DE"), ("Ulm", "DE"), ("Nice", "FR")):
            server.produce("cities.v1", json.dumps({"name": name, "country": country}).encode())
        yield server


def rows(cli: CommandLine, query: str, *options: str) -> list[list[str]]:
    return cli.rows("sql", query, *options)


def test_fields_of_json_are_columns(cli: CommandLine) -> None:
    query = "select city, count(*) as n, sum(amount) from orders where city is not null group by 1 order by 1"
    assert rows(cli, query) == [["Bonn", "2", "4.5"], ["Ulm", "1", "2.0"]]
    assert rows(cli, "select buyer.name, tags[2], late from orders where id = 1") == [["Ada", "b", "-"]]
    assert rows(cli, "select id - 10 from orders where id = 2") == [["-8"]]


def test_records_without_json_keep_their_text(cli: CommandLine) -> None:
    assert rows(cli, "select count(*), count(_value), count(city) from orders") == [["7", "5", "3"]]
    query = "select _key, _value, _partition, _offset, _timestamp > '2020-01-01' from orders where _key = 'k3'"
    assert rows(cli, query) == [["k3", "no json", "1", "1", "yes"]]


def test_topics_are_joined_and_names_quoted(cli: CommandLine) -> None:
    query = (
        'with big as (select * from orders where amount > 1) select c.country, count(*) from big join "cities.v1" c'
        " on big.city = c.name group by all"
    )
    assert rows(cli, query) == [["DE", "3"]]


def test_a_range_is_read_by_offsets_times_and_partitions(cli: CommandLine) -> None:
    count = "select count(*), min(_offset) from orders"
    assert rows(cli, count, "--from", "1") == [["5", "1"]]
    assert rows(cli, count, "--from", "-1") == [["2", "2"]]
    assert rows(cli, count, "--partition", "1") == [["3", "0"]]
    assert rows(cli, count, "--from", "1h") == [["7", "0"]]
    assert rows(cli, count, "--until", "2020-01-01") == [["0", "-"]]


def test_an_empty_topic_is_a_table_without_rows(cli: CommandLine) -> None:
    assert rows(cli, "select count(*) from empty") == [["0"]]


def test_the_result_is_printed_as_json(cli: CommandLine) -> None:
    printed = cli.objects("sql", "select city as City, buyer, tags from orders where id = 1")
    assert printed == [{"City": "Bonn", "buyer": {"name": "Ada"}, "tags": ["a", "b"]}]


def test_json_has_each_of_the_columns_with_one_name(cli: CommandLine) -> None:
    query = "select a.id, b.id, 5 as id_1, b.id from orders a, orders b where a.id = 1 and b.id = 2"
    assert cli.objects("sql", query) == [{"id": 1, "id_2": 2, "id_1": 5, "id_3": 2}]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("select city form orders", 'syntax error at or near "orders"; here: select city form >>>orders'),
        ("select 1", "the query reads no topic; name one, as in: select count(*) from orders"),
        ("select ctiy from orders", '"ctiy" not found in FROM clause'),
        ("drop table orders", "the query is wrong: "),
        ("select interval 1999999999 day from orders", "cast it in the query, as in value::text"),
        ("", "the query"),
    ],
)
def test_a_wrong_query_is_explained(cli: CommandLine, query: str, error: str) -> None:
    assert error in cli.fails("sql", query, status=2)


def test_a_column_that_does_not_exist_shows_its_place(cli: CommandLine) -> None:
    assert "here: select city, >>>ctiy from orders" in cli.fails("sql", "select city, ctiy from orders", status=2)


def test_a_topic_that_does_not_exist_has_a_suggestion(cli: CommandLine) -> None:
    error = cli.fails("sql", "select * from odrers")
    assert "there is no topic 'odrers'; did you mean 'orders'?" in error


def test_wrong_bounds_are_refused(cli: CommandLine) -> None:
    assert "--from latest reads nothing" in cli.fails("sql", "select * from orders", "--from", "latest", status=2)
    with pytest.raises(ConfigurationError, match="start must be an offset, or a datetime with a time zone"):
        TopicRange("orders", datetime(2026, 1, 1))
    with pytest.raises(ConfigurationError, match="end must be"):
        TopicRange("orders", end=-1)


def test_the_tables_of_a_query_are_found() -> None:
    query = "with a as (select * from x) select * from a join (select * from y.z) using (id) where b in (table w)"
    assert tables_of(query) == ["x", "y.z", "w"]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("with orders as (select * from orders where id > 1) select * from orders", ["orders"]),
        ("with a as (select * from b), b as (select * from a) select * from A, B", ["b"]),
        ("with recursive n as (select 1 as i union all select i + 1 from n where i < 3) select * from n", []),
        ("select * from (with orders as (select 1) select * from orders) join orders using (id)", ["orders"]),
        ("with a as (select 1) select * from s.a", ["s.a"]),
    ],
)
def test_a_name_that_a_query_defines_hides_a_topic_only_behind_its_definition(query: str, tables: list[str]) -> None:
    assert tables_of(query) == tables


def test_a_definition_may_have_the_name_of_its_topic(cli: CommandLine) -> None:
    assert rows(cli, "with orders as (select id from orders where id > 1) select count(*) from orders") == [["2"]]


def test_fields_do_not_take_the_names_of_the_columns_of_the_record(
    cli: CommandLine, server: EmbeddedKafkaServer
) -> None:
    server.produce("offsets", b'{"_offset":70,"_KEY":"mine","_offset_1":5,"n":1}', key=b"k")
    server.produce("offsets", b'{"_offset":71}', key=b"l")
    query = "select _offset, _offset_2, _offset_1, _key, _key_1 from offsets order by all"
    assert rows(cli, query) == [["0", "70", "5", "k", "mine"], ["1", "71", "-", "l", "-"]]
    _, _, errors = cli.run("sql", query)
    assert "table offsets has the field _offset as the column _offset_2: the name is in use" in errors


def test_fields_that_differ_in_case_only_or_have_no_name_do_not_fail_the_query(
    cli: CommandLine, server: EmbeddedKafkaServer
) -> None:
    server.produce("cases", b'{"id":1,"ID":"x","":2,"in":{"a":1,"A":2},"list":[{"":1}],"it\'s":{"b":3}}')
    query = 'select id, id_1, "in", list, "it\'s".b, _value like \'%:2%\' from cases'
    assert rows(cli, query) == [["1", "x", '{"a":1,"A":2}', '{"":1}', "3", "yes"]]


async def test_topics_that_differ_in_case_only_are_refused(cluster: EmbeddedCluster) -> None:
    async with Consumer(**cluster.client_settings()) as consumer:
        with pytest.raises(ConfigurationError, match="topics 'orders' and 'Orders' cannot be copied together"):
            await to_duckdb(consumer, ["orders", "Orders"])


async def test_two_ranges_of_a_topic_and_what_is_no_topic_are_refused(cluster: EmbeddedCluster) -> None:
    async with Consumer(**cluster.client_settings()) as consumer:
        with pytest.raises(ConfigurationError, match="topic 'orders' cannot be copied in two ranges"):
            await to_duckdb(consumer, [TopicRange("orders", 0, 2), TopicRange("orders", 4, 6)])
        for topics in (5, [5], [["orders"]]):
            with pytest.raises(TypeError, match=r"topics? must be"):
                await to_duckdb(consumer, topics)  # type: ignore[arg-type]


async def test_a_time_before_the_epoch_is_before_all_records(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    await cluster.produce("orders", b"{}")
    async with Consumer(**cluster.client_settings()) as consumer:
        old = datetime(1960, 1, 1, tzinfo=UTC)
        for part, count in ((TopicRange("orders", old), 1), (TopicRange("orders", end=old), 0)):
            with await to_duckdb(consumer, part) as database:
                assert database.execute("select count(*) from orders").fetchone() == (count,)
        with await to_duckdb(consumer, ["orders", "orders"]) as database:
            assert database.execute("select count(*) from orders").fetchone() == (1,)


def test_json_has_no_values_of_python(cli: CommandLine) -> None:
    query = """
        select 'nan'::double as n, [1.5, '-inf'::double] as l, 'ab'::blob as b, {'t': timestamp '2026-01-02 03:04:05'}
        as s, date '2026-01-02' as d, map {date '2026-01-02': 'x'} as m from empty right join (select 1) on true
    """
    assert cli.objects("sql", query) == [
        {
            "n": None,
            "l": [1.5, None],
            "b": "YWI=",
            "s": {"t": "2026-01-02T03:04:05"},
            "d": "2026-01-02",
            "m": {"2026-01-02": "x"},
        }
    ]


async def test_a_program_gets_a_database(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", 3)
    async with Producer(**cluster.client_settings()) as producer:
        for number in range(1000):
            await producer.put(
                "orders", json.dumps({"n": number, "big": 2**63 + number}).encode(), partition=number % 3
            )
        await producer.flush()
    async with Consumer(**cluster.client_settings(), allow_auto_create_topics=False, api_timeout=5) as consumer:
        seen: list[tuple[int, int]] = []
        with duckdb.connect() as own:
            database = await to_duckdb(
                consumer, ["orders"], connection=own, progress=lambda read, total: seen.append((read, total))
            )
            assert database is own
            assert database.execute("select count(*), sum(n), max(big) from orders").fetchone() == (
                1000,
                499500,
                2**63 + 999,
            )
            assert seen[-1] == (1000, 1000)
            tail = TopicRange("orders", -1, partitions=[0, 1])
            await to_duckdb(consumer, tail, connection=own)
            assert database.execute("select count(*) from orders").fetchone() == (2,)
            later = datetime.now(UTC) + timedelta(days=40_000)
            await to_duckdb(consumer, TopicRange("orders", end=later), connection=own)
            assert database.execute("select count(*) from orders").fetchone() == (1000,)
        with pytest.raises(KafkaError):
            await to_duckdb(consumer, "nope")


async def test_the_columns_are_those_of_all_values_in_the_order_in_which_they_come(cluster: EmbeddedCluster) -> None:
    values = [{"z": 1}] * 300 + [{"a": [1], "z": 1.5}, {"m": None}] + [{"z": 2}] * 9 + [{"a": [2.5], "m": {"n": True}}]
    async with Producer(**cluster.client_settings()) as producer:
        for value in values:
            await producer.put("forms", json.dumps(value).encode())
        await producer.flush()
    async with Consumer(**cluster.client_settings()) as consumer:
        database = await to_duckdb(consumer, "forms")
    columns = database.execute("describe forms").fetchall()[:3]
    assert [column[:2] for column in columns] == [("z", "DOUBLE"), ("a", "DOUBLE[]"), ("m", "STRUCT(n BOOLEAN)")]


def test_values_of_a_registry_are_columns(cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer) -> None:
    pytest.importorskip("fastavro")
    import anyio.from_thread

    from aiokafka_lite.embedded import EmbeddedSchemaRegistry

    registry = EmbeddedSchemaRegistry()
    with anyio.from_thread.start_blocking_portal() as portal, portal.wrap_async_context_manager(registry):
        schema = tmp_path / "order.avsc"
        fields = [{"name": "city", "type": "string"}, {"name": "n", "type": "long"}]
        schema.write_text(json.dumps({"type": "record", "name": "O", "fields": fields}))
        lines = tmp_path / "lines"
        lines.write_text('{"city":"Bonn","n":1}\n{"city":"Bonn","n":2}\n')
        options = ("--registry", registry.url)
        cli.ask("produce", "avro", "--file", str(lines), "--value-schema", str(schema), *options)
        server.produce("avro", b"\0\0\0\0\x63x")
        assert rows(cli, "select city, sum(n) from avro where n > 0 group by 1", *options) == [["Bonn", "3"]]
        assert rows(cli, "select count(*) from avro", *options) == [["3"]]


@pytest.mark.thorough
def test_a_hundred_thousand_rows_take_seconds(cli: CommandLine, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f'{{"id":{n},"city":"c{n % 50}","amount":{n / 2}}}\n' for n in range(100_000)))
    cli.ask("produce", "large", "--file", str(lines))
    assert rows(cli, "select count(distinct city), sum(id) from large") == [["50", "4999950000"]]
