"""Checks expectations as only Great Expectations can: their types, and the arguments of each type.

The only module with private names of Great Expectations: nothing public makes an expectation from the name of its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from great_expectations.exceptions import ExpectationNotFoundError
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from expectations.suites import Expectation
from streaming_core.errors import BadInput


def check(suites: Mapping[str, Sequence[Expectation]]) -> None:
    """Check the expectations of suites.

    Raises:
        BadInput: A type is unknown, or its arguments are wrong. The message names the suite and the rule.
    """
    for suite, expectations in suites.items():
        for expectation in expectations:
            about = {"description": expectation["description"] or None, "severity": expectation["severity"]}
            try:
                ExpectationConfiguration(
                    type=expectation["type"], kwargs=dict(expectation["kwargs"]), **about
                ).to_domain_obj()
            except ExpectationNotFoundError:
                raise BadInput(
                    f"{suite}: {expectation['description']}: Great Expectations has no expectation "
                    f"{expectation['type']}; its gallery lists them"
                ) from None
            except (ValueError, TypeError) as error:
                raise BadInput(
                    f"{suite}: {expectation['description']}: {expectation['type']}: {' '.join(str(error).split())}"
                ) from None
