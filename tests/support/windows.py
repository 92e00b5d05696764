"""The declaration of a windowed operator in one call, for tests that vary single options."""

WINDOWS = ("size", "advance", "kind", "delay", "idle")
KEYS = ("key", "keys", "every", "multiplicity")


def declare_window(owner, *streams, **options):
    """Declare a windowed operator of an application with streams, or of a stream, with the options of all its calls."""
    windows = {name: options.pop(name) for name in WINDOWS if name in options}
    keys = {name: options.pop(name) for name in KEYS if name in options}
    return owner.window(*streams, **windows).key_by(**keys).apply(**options)
