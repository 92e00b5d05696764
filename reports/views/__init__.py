"""The views of the pages. A view is a frozen dataclass, made from a run or a history, and a template prints it.

A module here is named after its page, or after a part that several pages share. Views read values and return text and
numbers. They write no file. `reports/pages.py` hands them to the templates.
"""
