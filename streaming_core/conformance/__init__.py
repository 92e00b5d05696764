"""Conformance: whether an engine answers as the oracle on workloads that are easy to get wrong.

- `workloads` makes small adversarial workloads of any application, from its declarations and its generator.
- `texts` lists the texts among them.
- `trial` runs one workload on an engine, and compares the outputs with the oracle's.
- `prefix` finds the event that causes a difference.
- `suite` runs all workloads of some applications. Begin reading there.
"""
