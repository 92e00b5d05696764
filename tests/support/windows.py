"""The declaration of a windowed operator in one call, for tests that vary single options."""

from streaming_core.api import rolling, session, sliding


def extent(size, advance=None, kind="multi", most=None):
    """The extent of this kind."""
    if kind == "session":
        return session(size, most)
    return rolling(size, advance) if kind == "single" else sliding(size, advance)


def declare_window(owner, *streams, size, advance=None, kind="multi", delay=None, idle=None, most=None, **options):
    """Declare a windowed operator of an application with streams, or of a stream, with the options of all its calls."""
    key = [options.pop(name) for name in ("key",) if options.get(name) is not None]
    keys = {name: options.pop(name) for name in ("keys", "every", "multiplicity") if name in options}
    options.pop("key", None)
    keyed = (owner.connect(*streams) if streams else owner).key_by(*key, **keys)
    return keyed.window(extent(size, advance, kind, most), delay=delay, idle=idle).apply(**options)
