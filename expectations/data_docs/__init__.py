"""Pages of Great Expectations (Data Docs) that load nothing from other sites.

The templates of Great Expectations load scripts, styles and fonts from content networks. Our templates replace those.
They keep its content blocks and use no script: tables are complete in the page, and `<details>` unfolds.
"""
