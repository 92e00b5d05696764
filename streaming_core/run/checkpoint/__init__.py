"""Checkpoints: a run that was killed, at any moment, resumes from the newest sound one.

`file` is the form of one checkpoint, `store` holds those of one folder and decides when to make one, `writing` writes
one in a process of its own, `states` declares what the states of an application consist of. `transfer` takes a
checkpoint to another host.
"""
