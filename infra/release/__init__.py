"""What a release needs: the smoke test of its wheel, the licenses it allows, and the publication of its pages."""
