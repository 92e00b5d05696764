"""`python -m infra.reference`: write the generated files that are not current."""

from infra.reference.files import main
from streaming_core.process import ending

if __name__ == "__main__":
    ending.end("docs", main)
