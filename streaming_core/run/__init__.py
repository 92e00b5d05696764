"""One run: a way of executing an application, carried out, recorded, compared with the oracle."""
