"""What a release of Lockstep needs: the smoke test of its wheel, and the publication of its documentation."""
