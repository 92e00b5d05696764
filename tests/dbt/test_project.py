"""Static checks of the dbt project's files."""

import re
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import yaml

from streaming_core.regression.warehouse import RAW

PROJECT = Path(__file__).resolve().parents[2] / "dbt"
SQL_TYPES = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


def models() -> dict[str, dict]:
    """Model name -> its entry in the YAML that has its name."""
    entries = {}
    for path in sorted(PROJECT.glob("models/*/*.sql")):
        (entry,) = yaml.safe_load(path.with_suffix(".yml").read_text())["models"]
        assert entry["name"] == path.stem
        entries[path.stem] = entry
    return entries


def test_sources_declare_the_columns_of_the_raw_files():
    (entry,) = yaml.safe_load((PROJECT / "models" / "staging" / "raw.yml").read_text())["sources"]
    assert entry["name"] == "raw"
    stated = {table["name"]: [(c["name"], c["data_type"]) for c in table["columns"]] for table in entry["tables"]}
    assert stated == {name: [(field.name, SQL_TYPES[field.type]) for field in schema] for name, schema in RAW.items()}


def _described() -> dict[str, dict[str, str]]:
    """The description of each column, by source table or mart, as written in the file."""
    (source,) = yaml.safe_load((PROJECT / "models" / "staging" / "raw.yml").read_text())["sources"]
    columns = {f"raw.{table['name']}": table["columns"] for table in source["tables"]}
    columns |= {path.stem: models()[path.stem]["columns"] for path in (PROJECT / "models" / "marts").glob("*.sql")}
    return {name: {column["name"]: column.get("description", "") for column in columns[name]} for name in columns}


def test_every_column_of_raw_tables_and_marts_has_a_description():
    assert {name: [c for c in columns if not columns[c].strip()] for name, columns in _described().items()} == {
        name: [] for name in _described()
    }


def test_shared_column_descriptions_are_unique_and_used():
    pages = [(PROJECT / "models" / name).read_text() for name in ("columns.md", "way.md")]
    blocks = [name for page in pages for name in re.findall(r"{% docs (\w+) %}\n.*?\n{% enddocs %}", page, flags=re.S)]
    used = {text for columns in _described().values() for text in columns.values()}
    assert len(blocks) == len(set(blocks))
    assert {f"{{{{ doc('{name}') }}}}" for name in blocks} == {text for text in used if text.startswith("{{")}


def test_exposures_list_the_marts_of_each_page():
    read = {
        mart
        for path in (PROJECT.parent / "reports").rglob("*.py")
        for mart in re.findall(r'mart\("(\w+)"\)', path.read_text())
    }
    exposures = yaml.safe_load((PROJECT / "models" / "exposures.yml").read_text())["exposures"]
    assert {f"ref('{mart}')" for mart in read} == {ref for exposure in exposures for ref in exposure["depends_on"]}


def test_every_model_states_its_grain_as_a_sentence():
    for name, entry in models().items():
        assert re.search(
            r"One row per [a-z, ]+\.$|One row per [a-z, ]+ that has passes\.$", entry["description"].strip()
        ), name


def test_every_staging_model_and_mart_tests_its_grain():
    for name, entry in models().items():
        tests = [key for test in entry.get("data_tests", []) for key in test]
        if not name.startswith("int_"):
            assert "one_row_per" in tests, name


def test_dbt_sends_no_usage_statistics():
    flags = yaml.safe_load((PROJECT / "dbt_project.yml").read_text())["flags"]
    assert flags["send_anonymous_usage_stats"] is False


def test_no_macro_replaces_one_of_dbt():
    """dbt prefers a macro of the project to its own of the same name, and a user's update would then change nothing."""
    packages = [Path(find_spec(name).origin).parent for name in ("dbt.include.global_project", "dbt.include.spark")]

    def macros(folder: Path) -> set[str]:
        texts = [path.read_text() for path in folder.rglob("*.sql")]
        return {name for text in texts for name in re.findall(r"{%-?\s*(?:macro|test)\s+(\w+)", text)}

    of_dbt = set().union(*map(macros, packages))
    assert {"get_where_subquery", "spark__create_table_as"} <= of_dbt
    ours = macros(PROJECT / "macros") | macros(PROJECT / "tests")
    assert ours & of_dbt == set()
    assert [name for name in ours if "__" in name] == [], "a prefix such as spark__ replaces a macro of an adapter"
    assert "dispatch" not in yaml.safe_load((PROJECT / "dbt_project.yml").read_text())


def test_marts_are_public_and_versioned_and_what_is_before_them_is_private():
    project = yaml.safe_load((PROJECT / "dbt_project.yml").read_text())["models"]["lockstep"]
    assert {name: project[name]["+access"] for name in ("staging", "intermediate", "marts")} == {
        "staging": "private",
        "intermediate": "private",
        "marts": "public",
    }
    for path in (PROJECT / "models" / "marts").glob("*.sql"):
        entry = models()[path.stem]
        assert entry["latest_version"] in [version["v"] for version in entry["versions"]], path.stem
