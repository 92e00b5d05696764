"""Data Docs that need nothing from elsewhere: the pages of Great Expectations with our templates and one stylesheet.

Its own templates load scripts, styles and fonts from several content networks. Ours replace those that do, keep its
content blocks, and use no script at all: tables are filled when the page is made, what unfolds is `<details>`.
"""
