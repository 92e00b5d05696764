"""`python -m expectations`."""

from expectations.validate import main
from streaming_core import ending

ending.end("expectations", main)
