"""Services that the command line and the DAGs both call: each file is one of them."""
