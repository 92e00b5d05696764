"""Checkpoints: a run that was killed, at any moment, resumes from the newest sound one.

- `file`: the form of one checkpoint;
- `store`: those of one folder, and when to make one;
- `writing`: a process of its own that writes one;
- `states`: what the states of an application consist of;
- `transfer`: takes a checkpoint to another host.
"""
