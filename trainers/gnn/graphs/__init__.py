"""The `data` section of a configuration of graphs: stores and generated sets, written once and mapped."""
