"""Pages about runs and benchmarks, made from LOCKSTEP_HOME: what people look at."""
