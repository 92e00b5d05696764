"""An expectation that shows the rows that break a rule. Suites name it `expect_no_row_to_break_the_rule`."""

from __future__ import annotations

import html
from typing import Any, ClassVar

from great_expectations.expectations import UnexpectedRowsExpectation
from great_expectations.render import LegacyDiagnosticRendererType, RenderedTableContent
from great_expectations.render.renderer.renderer import renderer

SHOWN = 20
FIRST = ("app", "cell", "check", "kind", "seq", "sub")  # the first columns; JSON sorts its keys by name


class ExpectNoRowToBreakTheRule(UnexpectedRowsExpectation):
    """Expects `unexpected_rows_query` to select no row. The page shows the first selected rows, escaped.

    It runs one query per rule, which returns at most 200 rows. The base class would run a second query to count all
    rows.
    """

    metric_dependencies: ClassVar[tuple[str, ...]] = ("unexpected_rows_query.table",)

    def _validate(self, metrics: dict, runtime_configuration: dict | None = None, execution_engine: Any = None) -> dict:
        rows = metrics["unexpected_rows_query.table"]
        return {
            "success": not rows,
            "result": {"observed_value": len(rows), "details": {"unexpected_rows": rows} if rows else {}},
        }

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.UNEXPECTED_TABLE)
    def _diagnostic_unexpected_table_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: dict | None = None
    ) -> list[RenderedTableContent] | None:
        rows = ((result.result or {}).get("details") or {}).get("unexpected_rows") if result else None
        if not rows:
            return None
        known = dict.fromkeys([*FIRST, *(name for row in rows for name in row)])
        columns = [name for name in known if any(row.get(name) is not None for row in rows)]
        return [
            RenderedTableContent(
                content_block_type="table",
                header_row=[html.escape(name) for name in columns],
                table=[
                    ["" if row.get(name) is None else html.escape(str(row[name])) for name in columns]
                    for row in rows[:SHOWN]
                ],
                styling={"body": {"classes": ["table-sm", "rows"]}},
            )
        ]
