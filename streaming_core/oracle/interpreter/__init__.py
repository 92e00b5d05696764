"""The meaning of an application: one event at a time, operators in topological order, in plain Python.

Operator functions become Python functions again. Their typed trees are printed (source.py) so that every operation
means exactly what the language says: 64-bit wrap-around, IEEE doubles, checked stores. They keep the file and line
numbers of the application, so an error points into it. Rows are slotted objects; text is bytes; containers are plain
Python (containers.py).

It takes a few microseconds an event.
"""

from streaming_core.oracle.interpreter.interpreter import Interpreter

__all__ = ["Interpreter"]
